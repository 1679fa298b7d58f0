# bash completion for dlock(1). Works with the bash-completion package and
# without it.

_dlock_actions='--acquire --attach --extend --release --force-release --resume --status --wait-until-free --list --history --ran-within --current --doctor --print-config'
_dlock_flags='--all --exclusive --shared --nonblock --tree --heartbeat --close --verbose --quiet --json --syslog --version --help --usage'
_dlock_valued=(--pause --slots --wait --conflict-exit-code --ttl --hold-at-least --message --once-per --remember --exit-status --owner --owner-file --hash --secret-file --scope --prefix --redis --backend --lock-dir --lock-file --name
    --on-degraded --fallback --cacert --client-cert --client-key --password-file --sentinel-password-file --wait-replicas --connect-timeout --retry-for --on-expire --stop-signal --grace --command --report --config)
_dlock_short='-x -s -n -w -E -t -r -c -m -o -v -q -V -h'
_dlock_signals='HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM CHLD CONT STOP TSTP TTIN TTOU
    URG XCPU XFSZ PROF VTALRM WINCH IO PWR SYS'
_dlock_schemes='redis:// rediss:// valkey:// valkeys:// unix:// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster://'

# Reads the word $1 as the shell would: plain is what it stands for, quote the
# mark of a quotation that is open at its end. Nothing in it is run, so this
# fails where there is an expansion other than of a variable. replaced is where
# in plain that part begins which readline replaces: behind the last separator.
_dlock_read() {
    local word=$1 c i
    plain='' quote='' replaced=0
    for ((i = 0; i < ${#word}; i++)); do
        c=${word:i:1}
        case $quote$c in
            "''" | '""') quote='' ;;
            "'"?) plain+=$c ;;
            \"\\)
                [[ ${word:i + 1:1} != [\$\`\"\\] ]] || c=${word:$((++i)):1}
                plain+=$c
                ;;
            \\) plain+=${word:$((++i)):1} ;;
            "'" | '"')
                quote=$c
                replaced=${#plain}
                ;;
            '$' | '"$')
                [[ ${word:i + 1} =~ ^([A-Za-z_][A-Za-z_0-9]*|\{[A-Za-z_][A-Za-z_0-9]*\}) ]] || return
                c=${BASH_REMATCH[1]//[\{\}]/}
                plain+=${!c}
                i=$((i + ${#BASH_REMATCH[1]}))
                ;;
            '`' | '"`') return 1 ;;
            *)
                plain+=$c
                [[ -n $quote || $COMP_WORDBREAKS != *"$c"* ]] || replaced=${#plain}
                ;;
        esac
    done
}

# Sets quoted to $1 as it has to stand inside the quotation $2, or outside of any.
_dlock_quote() {
    quoted=$1
    case $2 in
        "'") quoted=${quoted//\'/\'\\\'\'} ;;
        '"')
            # History is expanded in there, too, and a backslash would stay.
            quoted=${quoted//\\/\\\\} quoted=${quoted//\$/\\\$} quoted=${quoted//\`/\\\`} quoted=${quoted//\"/\\\"}
            quoted=${quoted//\!/\"\'\!\'\"}
            ;;
        *)
            [[ -z $quoted ]] || printf -v quoted %q "$quoted"
            return
            ;;
    esac
    # Readline takes a mark at the end for the one that closes.
    [[ $quoted != *"$2" ]] || quoted+=$2
}

# Offers those of the other arguments that begin like $1, the word at the cursor:
# as much of each as readline replaces.
_dlock_offer() {
    local plain quote replaced quoted word
    _dlock_read "$1" || return
    for word in "${@:2}"; do
        [[ $word == "$plain"* ]] || continue
        _dlock_quote "${word:replaced}" "$quote"
        COMPREPLY+=("$quoted")
    done
}

# Where the locks are, if the option $1 tells that, by its value $2: into the
# array place, as variables of the environment. $unlisted: there is no list.
_dlock_note() {
    local option=${1#--} plain quote replaced
    case $1 in
        --backend | --config | --lock-dir | --scope | --prefix | --cacert | --client-cert | --client-key | --password-file | --sentinel-password-file) ;;
        --redis | -r) option=redis ;;
        --lock-file) unlisted=1 name=- ;; # there is no NAME
        *) return ;;
    esac
    option=${option//-/_} option=DLOCK_${option^^}
    if ! _dlock_read "$2"; then
        unlisted=1
    elif [[ $option == DLOCK_REDIS && -n $servers ]]; then
        servers+=" $plain"
    elif [[ $option == DLOCK_REDIS ]]; then
        servers=$plain
    else
        # A directory that is not there would be made.
        [[ $option != DLOCK_LOCK_DIR || -d $plain ]] || unlisted=1
        place+=("$option=$plain")
    fi
}

# Prints the names of the locks that are held or remember a run, one a line. What is on the line
# goes by the environment, which others cannot read: there may be a password in
# it. Of the JSON only names are taken that dlock takes: an escape other than of
# a quotation mark or a backslash stands for a control character, or for what is
# no UTF-8. Nor are those of use that reorder the text around them, or a digest.
_dlock_held() {
    local reorders=$'\330\234|\342\200[\216\217\250-\256]|\342\201[\246-\251]'
    (
        # That no Redis is configured is said to whoever reads it.
        export DLOCK_ON_DEGRADED=proceed "${place[@]}"
        [[ -z $servers ]] || export DLOCK_REDIS=$servers
        timeout -s KILL 0.2 "$program" --list --all --json </dev/null
    ) 2>/dev/null | LC_ALL=C command sed -nE 's/^\{"key":"(([^"\\]|\\["\\])*)",.*/\1/p' 2>/dev/null |
        LC_ALL=C command sed -E -e "/$reorders/d" -e '/^[0-9a-f]{64}$/d' -e 's/\\(["\\])/\1/g' 2>/dev/null
}

# Completes the word $1 as the name of such a lock.
_dlock_name() {
    local -a names=()
    local name
    [[ -z $unlisted ]] || return 0
    while IFS= read -r name; do
        [[ $name == -* && -z $no_options || -n $is_pattern && $name == *[[\\]* ]] || names+=("$name")
    done < <(_dlock_held)
    _dlock_offer "$1" "${names[@]}"
}

# As complete(1) was told for the command of the line that begins at
# COMP_WORDS[$1], where there is no bash-completion to do it.
_dlock_command_alone() {
    local start=$1 i
    for ((i = 0; i < start; i++)); do
        COMP_LINE=${COMP_LINE#*"${COMP_WORDS[i]}"}
    done
    local before=${#COMP_LINE}
    COMP_LINE=${COMP_LINE#"${COMP_LINE%%[![:space:]]*}"}
    COMP_POINT=$((COMP_POINT - (_dlock_length - before) - (before - ${#COMP_LINE})))
    COMP_WORDS=("${COMP_WORDS[@]:start}")
    COMP_CWORD=$((COMP_CWORD - start))
    local command=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} spec
    local -a how
    spec=$(complete -p -- "$command" 2>/dev/null || complete -p -- "${command##*/}" 2>/dev/null) || return
    # It is printed so that the shell can read it again.
    eval "how=($spec)"
    how=("${how[@]:1:${#how[@]}-2}")
    for ((i = 0; i < ${#how[@]}; i++)); do
        [[ ${how[i]} == -F ]] || continue
        "${how[i + 1]}" "$command" "$current" "${COMP_WORDS[COMP_CWORD - 1]}"
        return
    done
    mapfile -t COMPREPLY < <(compgen "${how[@]}" -- "$current" 2>/dev/null)
}

# Completes the command that begins at COMP_WORDS[$1], if there may be one.
_dlock_command() {
    if [[ -n $no_command ]]; then
        COMPREPLY=()
        compopt +o default 2>/dev/null
    elif ((COMP_CWORD == $1)) && [[ -z ${COMP_WORDS[COMP_CWORD]} ]]; then
        COMPREPLY=() # every command there is helps nobody
        compopt +o default 2>/dev/null
    elif declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif ((COMP_CWORD == $1)); then
        mapfile -t COMPREPLY < <(compgen -A command -- "${COMP_WORDS[COMP_CWORD]}")
    else
        _dlock_command_alone "$1"
    fi
}

# Completes the value $2 of the option $1; $3 is "inside" where readline takes
# both for one word.
_dlock_value() {
    local words=''
    case $1 in
        --backend) words='auto redis file' ;;
        --on-degraded) words='warn warn-throttled proceed fail' ;;
        --fallback) words='off file' ;;
        --hash) words='none sha256 hmac-sha256' ;;
        --on-expire) words='stop warn' ;;
        --stop-signal) words=$_dlock_signals ;;
        --redis | -r)
            words=$_dlock_schemes
            compopt -o nospace 2>/dev/null
            ;;
        --wait | -w | --ttl | -t | --pause | --hold-at-least | --once-per | --remember | --ran-within | --connect-timeout | --retry-for | --grace)
            [[ $2 =~ ^[0-9a-z.]*[0-9]$ ]] && words="$2ms $2s $2m $2h $2d"
            ;;
        # Readline completes files, where it takes the value for a word.
        --lock-dir)
            compopt +o default -o dirnames 2>/dev/null
            [[ $3 != inside ]] || mapfile -t COMPREPLY < <(compgen -d -- "$2")
            return
            ;;
        --lock-file | --owner-file | --report | --config | --secret-file | --cacert | --client-cert | --client-key | --password-file | --sentinel-password-file)
            [[ $3 != inside ]] || mapfile -t COMPREPLY < <(compgen -f -- "$2")
            return
            ;;
    esac
    compopt +o default 2>/dev/null
    # shellcheck disable=SC2086
    _dlock_offer "$2" $words
}

_dlock() {
    # The words up to the cursor. Those in COMP_WORDS are cut at '=' and ':';
    # what no white space separates is one word again here. at[i] is where
    # words[i] begins in COMP_WORDS.
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} rest word
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
    # there is one: not with an action, nor with -c. --status has many names.
    local last=$((${#words[@]} - 1)) name='' owner='' no_options='' no_command='' many=''
    # What the list of locks goes by.
    local program=$1 unlisted='' is_pattern='' servers=''
    local -a place=()
    for ((i = 1; i < last; i++)); do
        word=${words[i]}
        if [[ -n $owner ]]; then
            _dlock_note "$owner" "${word/#\~\//\$HOME/}"
            owner=''
            continue
        fi
        if [[ -n $no_options ]]; then
            name=$word
            [[ -z $many ]] || continue
            i=$((i + 1))
            _dlock_command "${at[i]}"
            return
        fi
        case $word in
            --)
                if [[ -n $name && -z $many ]]; then
                    _dlock_command "${at[i + 1]}"
                    return
                fi
                no_options=1
                ;;
            --command=* | --attach=* | --pause=*) no_command=1 ;;
            --*=*) _dlock_note "${word%%=*}" "${word#*=}" ;;
            --name) owner=$word ;;
            --n*) ;;
            --*)
                [[ $word == --current ]] && unlisted=1
                [[ $word == --list ]] && is_pattern=1
                [[ $word == --status ]] && many=1
                if [[ " $_dlock_actions " == *" $word "* ]]; then
                    no_command=1
                elif [[ " $_dlock_flags " != *" $word "* ]]; then
                    owner=$word
                    [[ $word != --command && $word != --pause ]] || no_command=1
                fi
                ;;
            -?*)
                # The first letter that takes a value takes the rest of the word, else the next word.
                rest=${word#"${word%%[wEtrcm]*}"}
                [[ $rest == ? ]] && owner=-$rest
                [[ $rest == r?* ]] && _dlock_note -r "${rest#r}"
                [[ $rest == c* ]] && no_command=1
                ;;
            *)
                if [[ -n $name && -z $many ]]; then
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
        _dlock_value "$owner" "$current" apart
    elif [[ -z $no_options && $current == --*=* ]]; then
        local where=apart
        [[ $COMP_WORDBREAKS == *=* ]] || where=inside
        _dlock_value "${current%%=*}" "${current#*=}" "$where"
        [[ $where == apart ]] || COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}")
    elif [[ -z $no_options && $current == -* ]]; then
        local options
        options="$_dlock_short $_dlock_flags ${_dlock_valued[*]/%/=}"
        [[ -n $no_command ]] || options+=" $_dlock_actions"
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    elif [[ -n $name && -z $many ]]; then
        _dlock_command "${at[last]}"
    else
        compopt +o default 2>/dev/null
        _dlock_name "$current"
    fi
    return 0
}

complete -o default -F _dlock dlock
