#include "store/file/fs_type.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/vfs.h>

/* By statfs(2) and linux/magic.h; flock(2), NOTES. */
static const struct {
    uint32_t magic;
    struct fs_type type;
} special[] = {
    {0x794C7630, {"overlay", FS_CONTAINER}}, {0x61756673, {"aufs", FS_CONTAINER}},
    {0x6969, {"nfs", FS_WHOLE_FILE}},        {0xFF534D42, {"cifs", FS_WHOLE_FILE}},
    {0xFE534D42, {"smb2", FS_WHOLE_FILE}},   {0x517B, {"smb", FS_WHOLE_FILE}},
    {0x00C36400, {"ceph", FS_NETWORK}},      {0x65735546, {"fuse", FS_NETWORK}},
    {0x01021997, {"9p", FS_NETWORK}},        {0x5346414F, {"afs", FS_NETWORK}},
    {0x01161970, {"gfs2", FS_NETWORK}},      {0x7461636F, {"ocfs2", FS_NETWORK}},
    {0x0BD00BD0, {"lustre", FS_NETWORK}},    {0x47504653, {"gpfs", FS_NETWORK}},
};

bool fs_type_of(int fd, struct fs_type *type)
{
    struct statfs status;
    if (fstatfs(fd, &status) != 0)
        return false;
    *type = (struct fs_type){"", FS_LOCAL};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i].magic == (uint32_t)status.f_type)
            *type = special[i].type;
    return true;
}
