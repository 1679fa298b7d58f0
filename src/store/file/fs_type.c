#include "store/file/fs_type.h"

#include <stddef.h>
#include <sys/vfs.h>

/* By statfs(2) and linux/magic.h; flock(2), NOTES. */
static const struct fs_type types[] = {
    {"ext4", 0xEF53, FS_LOCAL},          {"xfs", 0x58465342, FS_LOCAL},
    {"btrfs", 0x9123683E, FS_LOCAL},     {"zfs", 0x2FC12FC1, FS_LOCAL},
    {"f2fs", 0xF2F52010, FS_LOCAL},      {"tmpfs", 0x01021994, FS_MEMORY},
    {"ramfs", 0x858458F6, FS_MEMORY},    {"overlay", 0x794C7630, FS_CONTAINER},
    {"aufs", 0x61756673, FS_CONTAINER},  {"nfs", 0x6969, FS_WHOLE_FILE},
    {"cifs", 0xFF534D42, FS_WHOLE_FILE}, {"smb2", 0xFE534D42, FS_WHOLE_FILE},
    {"smb", 0x517B, FS_WHOLE_FILE},      {"ceph", 0x00C36400, FS_NETWORK},
    {"fuse", 0x65735546, FS_NETWORK},    {"9p", 0x01021997, FS_NETWORK},
    {"afs", 0x5346414F, FS_NETWORK},     {"gfs2", 0x01161970, FS_NETWORK},
    {"ocfs2", 0x7461636F, FS_NETWORK},   {"lustre", 0x0BD00BD0, FS_NETWORK},
    {"gpfs", 0x47504653, FS_NETWORK},
};

bool fs_type_of(int fd, struct fs_type *type)
{
    struct statfs status;
    if (fstatfs(fd, &status) != 0)
        return false;
    *type = (struct fs_type){"", (uint32_t)status.f_type, FS_UNKNOWN};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].magic == type->magic)
            *type = types[i];
    return true;
}
