#compdef tenure
# Completions of tenure for zsh. Made by: tenure completions zsh
_tenure() {
    local line value at=${words[(i)--]}
    local -a said candidates
    if (( at < CURRENT )); then
        shift $at words
        (( CURRENT -= at ))
        _normal
        return
    fi
    said=("${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    for line in $said; do
        value=${line%%$'\t'*}
        case $value in
        :files) _files; return ;;
        :folders) _files -/; return ;;
        esac
        candidates+=("${value//:/\\:}:${line#*$'\t'}")
    done
    (( $#candidates )) && _describe -V tenure candidates
}
if [[ $funcstack[1] == _tenure ]]; then
    _tenure "$@"
else
    compdef _tenure tenure
fi
