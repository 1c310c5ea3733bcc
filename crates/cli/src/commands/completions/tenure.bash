# Completions of tenure for bash. Made by: tenure completions bash
_tenure() {
    local line=${COMP_LINE:0:COMP_POINT} current candidate i
    local -a words
    # Not COMP_WORDS, which bash breaks at every colon and equals sign.
    read -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    current=${words[${#words[@]} - 1]}
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset $((i + 1))
        elif declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        elif ((i + 1 == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$current")
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
        fi
        return
    done
    while IFS=$'\t' read -r candidate _; do
        case $candidate in
        :files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "${current#*=}"); return ;;
        :folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "${current#*=}"); return ;;
        *[:=]) compopt -o nospace ;;
        esac
        printf -v candidate %q "$candidate"
        COMPREPLY+=("$candidate")
    done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    # bash replaces only what follows the last colon or equals sign.
    local breaks=${COMP_WORDBREAKS//[^:=]/} kept
    if [[ -n $breaks && $current == *["$breaks"]* ]]; then
        kept=${current%"${current##*["$breaks"]}"}
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    fi
}
complete -F _tenure tenure
