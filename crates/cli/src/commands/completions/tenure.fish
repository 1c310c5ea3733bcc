# Completions of tenure for fish. Made by: tenure completions fish
function __tenure_complete
    set -l words (commandline -opc) (commandline -ct)
    if set -l at (contains -i -- -- $words[1..-2])
        complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-2]) $words[-1])
        return
    end
    for line in ($words[1] complete -- $words[2..] 2>/dev/null)
        switch $line
            case ':files*'
                __fish_complete_path $words[-1]
            case ':folders*'
                __fish_complete_directories $words[-1]
            case '*'
                echo $line
        end
    end
end
complete -c tenure -f -a '(__tenure_complete)'
