# bash completion for dlock(1). Works with the bash-completion package and
# without it.

_dlock_actions='--acquire --attach --extend --release --force-release --status --wait-free --list --current --doctor'
_dlock_flags='--exclusive --shared --nonblock --tree --heartbeat --close --verbose --quiet --json --version --help --usage'
_dlock_valued=(--slots --wait --conflict-exit-code --ttl --hold-at-least --owner --owner-file --hash --secret-file --scope --prefix --redis --backend --lock-dir --lock-file
    --on-degraded --fallback --cacert --cert --key --password-file --sentinel-password-file --wait-replicas --connect-timeout --outage --on-expire --stop-signal --grace --command --report)
_dlock_short='-x -s -n -w -E -t -r -c -o -v -q -V -h'
_dlock_signals='HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM CHLD CONT STOP TSTP TTIN TTOU
    URG XCPU XFSZ PROF VTALRM WINCH IO PWR SYS'

# Completes the command that begins at COMP_WORDS[$1], if there may be one.
_dlock_command() {
    local start=$1 i
    if [[ -n $no_command ]]; then
        COMPREPLY=()
        compopt +o default 2>/dev/null
        return
    fi
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$start"
        return
    fi
    if declare -F _command_offset >/dev/null; then
        _command_offset "$start"
        return
    fi
    if ((COMP_CWORD == start)); then
        mapfile -t COMPREPLY < <(compgen -A command -- "${COMP_WORDS[COMP_CWORD]}")
        return
    fi
    # As if the line began with the command.
    for ((i = 0; i < start; i++)); do
        COMP_LINE=${COMP_LINE#*"${COMP_WORDS[i]}"}
    done
    local before=${#COMP_LINE}
    COMP_LINE=${COMP_LINE#"${COMP_LINE%%[![:space:]]*}"}
    COMP_POINT=$((COMP_POINT - (_dlock_length - before) - (before - ${#COMP_LINE})))
    COMP_WORDS=("${COMP_WORDS[@]:start}")
    COMP_CWORD=$((COMP_CWORD - start))
    local command=${COMP_WORDS[0]} spec
    spec=$(complete -p "$command" 2>/dev/null || complete -p "${command##*/}" 2>/dev/null)
    if [[ $spec =~ \ -F\ ([^ ]+) ]]; then
        "${BASH_REMATCH[1]}" "$command" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    fi
}

# Completes the value $2 of the option $1.
_dlock_value() {
    local words=''
    case $1 in
        --backend) words='auto redis file' ;;
        --on-degraded) words='warn warn-throttled proceed fail' ;;
        --fallback) words='file' ;;
        --hash) words='none sha256 hmac-sha256' ;;
        --on-expire) words='stop warn' ;;
        --stop-signal) words=$_dlock_signals ;;
        --lock-dir)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$2")
            return
            ;;
        --lock-file | --owner-file | --report | --secret-file | --cacert | --cert | --key | --password-file | --sentinel-password-file)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$2")
            return
            ;;
    esac
    compopt +o default 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
}

_dlock() {
    # The words up to the cursor. Those in COMP_WORDS are cut at '=' and ':';
    # what no white space separates is one word again here. at[i] is where
    # words[i] begins in COMP_WORDS.
    local line=${COMP_LINE:0:COMP_POINT} rest word
    local -a words=() at=()
    local i blank _dlock_length=${#COMP_LINE}
    for ((i = 0; i <= COMP_CWORD; i++)); do
        rest=${line#"${line%%[![:space:]]*}"}
        blank=$((${#line} - ${#rest}))
        word=${COMP_WORDS[i]}
        ((i == COMP_CWORD)) && word=$rest
        if ((i > 0 && blank == 0)) && [[ -n $line ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
            at+=("$i")
        fi
        line=${rest#"$word"}
    done

    # NAME, then the first word that is no option begins the command; where
    # there is one: not with an action, nor with -c.
    local last=$((${#words[@]} - 1)) name='' owner='' no_options='' no_command=''
    for ((i = 1; i < last; i++)); do
        word=${words[i]}
        if [[ -n $owner ]]; then
            owner=''
            continue
        fi
        if [[ -n $no_options && -z $name ]]; then
            name=$word
            i=$((i + 1))
            _dlock_command "${at[i]}"
            return
        fi
        case $word in
            --)
                if [[ -n $name ]]; then
                    _dlock_command "${at[i + 1]}"
                    return
                fi
                no_options=1
                ;;
            --command=* | --attach=*) no_command=1 ;;
            --*=*) ;;
            --n*) ;;
            --*)
                if [[ " $_dlock_actions " == *" $word "* ]]; then
                    no_command=1
                elif [[ " $_dlock_flags " != *" $word "* ]]; then
                    owner=$word
                    [[ $word == --command ]] && no_command=1
                fi
                ;;
            -*[wEtrc])
                # Not where an earlier letter takes the rest as its value.
                [[ ${word%?} == *[wEtrc]* ]] || owner=-${word: -1}
                [[ $word == -*c* ]] && no_command=1
                ;;
            -?*) ;;
            *)
                if [[ -n $name ]]; then
                    _dlock_command "${at[i]}"
                    return
                fi
                name=$word
                ;;
        esac
    done

    local current=${words[last]}
    COMPREPLY=()
    if [[ -n $owner ]]; then
        _dlock_value "$owner" "$current"
    elif [[ -z $no_options && $current == --*=* ]]; then
        _dlock_value "${current%%=*}" "${current#*=}"
        # Only what follows the '=' is replaced where it separates words.
        if [[ $COMP_WORDBREAKS != *=* ]]; then
            COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}")
        fi
    elif [[ -z $no_options && $current == -* ]]; then
        local options
        options="$_dlock_short $_dlock_flags ${_dlock_valued[*]/%/=}"
        [[ -n $no_command ]] || options+=" $_dlock_actions"
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    elif [[ -n $name ]]; then
        _dlock_command "${at[last]}"
    else
        # The name of a lock: nothing to offer.
        compopt +o default 2>/dev/null
    fi
    return 0
}

complete -o default -F _dlock dlock
