//! The signatures (marks) that file systems, partition tables and other users leave on disks: what a disk contains before it becomes a
//! device. `blkid` of util-linux knows all of them; without it, the most frequent ones are known here.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// How much of a disk is looked at.
const LOOK_BYTES: usize = 66 << 10;

/// The program that knows what disks contain, and how it ends if it finds marks of several users of disks.
const BLKID: &str = "/usr/sbin/blkid";
const AMBIVALENT: i32 = 8;

/// What leaves these bytes there.
const MARKS: [(u64, &[u8], &str); 22] = [
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (1080, &[0x53, 0xef], "a file system (ext2, ext3 or ext4)"),
    (0, b"XFSB", "a file system (XFS)"),
    (65_600, b"_BHRfS_M", "a file system (btrfs)"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "a file system (F2FS)"),
    (3, b"NTFS    ", "a file system (NTFS)"),
    (3, b"EXFAT   ", "a file system (exFAT)"),
    (54, b"FAT", "a file system (FAT)"),
    (82, b"FAT32", "a file system (FAT)"),
    (32_769, b"CD001", "a file system (ISO 9660)"),
    (0, b"hsqs", "a file system (squashfs)"),
    (0, b"QFI\xfb", "the image of a disk (qcow2)"),
    (0, b"SQLite format 3\0", "a database (SQLite)"),
    (0, b"LUKS\xba\xbe", "an encrypted disk (LUKS)"),
    (512, b"LABELONE", "a physical volume (LVM)"),
    (24, b"LVM2", "a physical volume (LVM)"),
    (536, b"LVM2 001", "a physical volume (LVM)"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a part of a RAID (md)"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a part of a RAID (md)"),
    (510, &[0x55, 0xaa], "a partition table (MBR), or a boot sector"),
];

/// What leaves these bytes so many bytes before the end, in a place that is rounded down to a multiple of the last number.
const MARKS_AT_END: [(u64, u64, &[u8], &str); 4] = [
    (512, 512, b"EFI PART", "a partition table (GPT; its first copy is gone)"),
    (4096, 4096, b"EFI PART", "a partition table (GPT; its first copy is gone)"),
    (8 << 10, 4 << 10, &[0xfc, 0x4e, 0x2b, 0xa9], "a part of a RAID (md)"),
    (64 << 10, 64 << 10, &[0xfc, 0x4e, 0x2b, 0xa9], "a part of a RAID (md)"),
];

/// ZFS keeps two labels at the beginning of a disk, and two at the end. The second half of each is a ring of blocks with this mark, in the order
/// of bytes of the machine that wrote it.
const ZFS_LABEL_BYTES: u64 = 256 << 10;
const ZFS_BLOCK_BYTES: usize = 1 << 10;
const ZFS_MARK: u64 = 0x00ba_b10c;

/// What a disk of this size contains; none if that is not known.
pub(crate) fn content(path: &Path, file: &File, size: u64) -> std::io::Result<Option<String>> {
    let mut start = vec![0; LOOK_BYTES.min(usize::try_from(size).unwrap_or(usize::MAX))];
    file.read_exact_at(&mut start, 0)?;
    let known = || content_at_start(&start).or_else(|| zfs_or_content_at_end(file, size));
    Ok(probed(path).or_else(|| known().map(str::to_string)))
}

/// What `blkid` finds at any place of a disk; none if that is nothing, or there is no such program.
fn probed(path: &Path) -> Option<String> {
    let asked = Command::new(BLKID).args(["-p", "-o", "export", "--"]).arg(path).output().ok()?;
    if asked.status.code() == Some(AMBIVALENT) {
        return Some("marks of several file systems, partition tables or other users of disks".to_string());
    }
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_string);
    let table = value("PTTYPE=").map(|kind| format!("a partition table ({kind})"));
    value("TYPE=").map(|kind| format!("what `blkid` calls {kind}")).or(table)
}

/// What the beginning of a disk shows.
fn content_at_start(start: &[u8]) -> Option<&'static str> {
    let is_there = |offset: u64, mark: &[u8]| start.get(offset as usize..).is_some_and(|rest| rest.starts_with(mark));
    MARKS.iter().find(|(offset, mark, _)| is_there(*offset, mark)).map(|(_, _, what)| *what)
}

/// What ZFS or the end of a disk shows.
fn zfs_or_content_at_end(file: &File, size: u64) -> Option<&'static str> {
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    let (labels, half) = (size / ZFS_LABEL_BYTES, ZFS_LABEL_BYTES / 2);
    let places = [Some(0), Some(1), labels.checked_sub(2), labels.checked_sub(1)].into_iter().flatten();
    let mut rings = places.filter_map(|label| read(label * ZFS_LABEL_BYTES + half, half as usize));
    let is_zfs =
        |block: &[u8]| [ZFS_MARK.to_le_bytes(), ZFS_MARK.to_be_bytes()].iter().any(|mark| block.starts_with(mark));
    if rings.any(|ring| ring.chunks(ZFS_BLOCK_BYTES).any(is_zfs)) {
        return Some("a disk of a pool (ZFS)");
    }
    let is_there = |(before, unit, mark, _): &&(u64, u64, &[u8], &str)| {
        let offset = size.checked_sub(*before).map(|offset| offset - offset % unit);
        offset.and_then(|offset| read(offset, mark.len())).is_some_and(|found| found == *mark)
    };
    MARKS_AT_END.iter().find(is_there).map(|(.., what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_where_they_are() {
        let with = |offset: u64, mark: &[u8]| {
            let mut start = vec![0; LOOK_BYTES];
            start[offset as usize..][..mark.len()].copy_from_slice(mark);
            start
        };
        for (offset, mark, what) in MARKS {
            assert_eq!(content_at_start(&with(offset, mark)), Some(what));
            assert_eq!(content_at_start(&with(offset + 1, mark)), None, "{what}");
        }
        assert_eq!(content_at_start(&[]), None);
        // The size in KiB; where the mark is in bytes, from the end if that is negative.
        let path = std::env::temp_dir().join(format!("braid-marks-{}", std::process::id()));
        let little = ZFS_MARK.to_le_bytes();
        let zfs = Some("a disk of a pool (ZFS)");
        let (gpt, md) = (Some("a partition table (GPT; its first copy is gone)"), Some("a part of a RAID (md)"));
        let cases: [(u64, i64, &[u8], Option<&str>); 13] = [
            (8192, 128 << 10, &little, zfs),
            (8192, (256 + 128 + 7) << 10, &ZFS_MARK.to_be_bytes(), zfs),
            (8192 + 255, (7680 + 128 + 127) << 10, &little, zfs),
            (8192 + 255, (7936 + 128 + 4) << 10, &little, zfs),
            (8192, (512 + 128) << 10, &little, None),
            (8192, (128 << 10) + 8, &little, None),
            (8192, -512, b"EFI PART", gpt),
            (8192, -4096, b"EFI PART", gpt),
            (8192, -1024, b"EFI PART", None),
            (8192 + 3, 8184 << 10, &[0xfc, 0x4e, 0x2b, 0xa9], md),
            (8192 + 63, (8192 - 64) << 10, &[0xfc, 0x4e, 0x2b, 0xa9], md),
            (0, 0, b"", None),
            (64, 100, b"nothing", None),
        ];
        for (kib, offset, mark, expected) in cases {
            let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
            let file = file.expect("there is room");
            file.set_len(kib << 10).expect("it grows");
            let at = if offset < 0 { (kib << 10) - offset.unsigned_abs() } else { offset.unsigned_abs() };
            file.write_all_at(mark, at).expect("there is room");
            assert_eq!(zfs_or_content_at_end(&file, kib << 10), expected, "{kib} {offset}");
        }
        std::fs::remove_file(path).expect("it is there");
    }
}
