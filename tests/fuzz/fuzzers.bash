# The fuzzers, and which calls each takes from the linker in place of the real ones.
# shellcheck shell=bash

# shellcheck disable=SC2034
fuzzers='reply url config duration record lock_dir arguments environment names secret proc shown'

fuzzer_wraps() {
    case $1 in
        reply) echo -Wl,--wrap=connect,--wrap=send,--wrap=recv,--wrap=poll,--wrap=pthread_create ;;
        proc) echo -Wl,--wrap=open,--wrap=fopen,--wrap=open64,--wrap=fopen64 ;;
        shown) echo -Wl,--wrap=tcgetpgrp,--wrap=ioctl,--wrap=poll,--wrap=write,--wrap=splice ;;
    esac
}
