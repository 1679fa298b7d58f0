#include "store/redis/keys.h"

#include "lock/lock_name.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* CRC-16/XMODEM: polynomial 0x1021, begun with 0. Bit by bit, since a key is
 * short and hashed a few times in all. */
static unsigned crc16(const char *bytes, size_t length)
{
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned)(uint8_t)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc << 1 ^ ((crc & 0x8000) != 0 ? 0x1021 : 0)) & 0xFFFF;
    }
    return crc;
}

int redis_slot(const char *key)
{
    const char *open = strchr(key, '{'), *close = open != NULL ? strchr(open, '}') : NULL;
    if (close != NULL && close > open + 1)
        return (int)(crc16(open + 1, (size_t)(close - open) - 1) % REDIS_SLOTS);
    return (int)(crc16(key, strlen(key)) % REDIS_SLOTS);
}

bool redis_keys_is_shared(const char *key)
{
    char companion[2 * LOCK_KEY_SIZE];
    lock_key_companion(companion, sizeof companion, key, "meta");
    return redis_slot(companion) == redis_slot(key);
}
