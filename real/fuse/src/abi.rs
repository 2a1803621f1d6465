//! The kernel's interface: structures, numbers and flags of `linux/fuse.h`, as far as they are needed, under the kernel's names. All
//! numbers have the byte order of the machine. A test compares them with the system's header.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The version of the protocol. The kernel states its own, and the lower of both applies.
pub const MAJOR: u32 = 7;
pub const MINOR_MAX: u32 = 45;
/// Linux 5.4: the oldest kernel that is served.
pub const MINOR_MIN: u32 = 31;

/// Declares structures without padding, and lists their sizes for the test.
macro_rules! structures {
    ($($(#[$note:meta])* $kernel:literal $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$note])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type,)* }
        )*
        #[cfg(test)]
        pub const STRUCTURES: &[(&str, usize)] = &[$(($kernel, size_of::<$name>()),)*];
    };
}

/// Declares numbers, and lists them for the test.
macro_rules! numbers {
    ($list:ident, $prefix:literal, $type:ty, { $($name:ident = $value:expr,)* }) => {
        $(pub const $name: $type = $value;)*
        #[cfg(test)]
        pub const $list: &[(&str, u64)] = &[$((concat!($prefix, stringify!($name)), $name as u64),)*];
    };
}

structures! {
    "fuse_in_header" InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    "fuse_out_header" OutHeader {
        len: u32,
        error: i32,
        unique: u64,
    }
    "fuse_attr" Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    "fuse_entry_out" EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    "fuse_attr_out" AttrOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        dummy: u32,
        attr: Attr,
    }
    "fuse_forget_in" ForgetIn {
        nlookup: u64,
    }
    "fuse_batch_forget_in" BatchForgetIn {
        count: u32,
        dummy: u32,
    }
    "fuse_forget_one" ForgetOne {
        nodeid: u64,
        nlookup: u64,
    }
    "fuse_getattr_in" GetattrIn {
        getattr_flags: u32,
        dummy: u32,
        fh: u64,
    }
    "fuse_setattr_in" SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    "fuse_mknod_in" MknodIn {
        mode: u32,
        rdev: u32,
        umask: u32,
        padding: u32,
    }
    "fuse_mkdir_in" MkdirIn {
        mode: u32,
        umask: u32,
    }
    "fuse_rename_in" RenameIn {
        newdir: u64,
    }
    "fuse_rename2_in" Rename2In {
        newdir: u64,
        flags: u32,
        padding: u32,
    }
    "fuse_link_in" LinkIn {
        oldnodeid: u64,
    }
    "fuse_open_in" OpenIn {
        flags: u32,
        open_flags: u32,
    }
    "fuse_create_in" CreateIn {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }
    "fuse_open_out" OpenOut {
        fh: u64,
        open_flags: u32,
        padding: u32,
    }
    "fuse_release_in" ReleaseIn {
        fh: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }
    "fuse_flush_in" FlushIn {
        fh: u64,
        unused: u32,
        padding: u32,
        lock_owner: u64,
    }
    "fuse_read_in" ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    "fuse_write_in" WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
    "fuse_write_out" WriteOut {
        size: u32,
        padding: u32,
    }
    "fuse_statfs_out" StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    "fuse_fsync_in" FsyncIn {
        fh: u64,
        fsync_flags: u32,
        padding: u32,
    }
    "fuse_file_lock" FileLock {
        start: u64,
        end: u64,
        kind: u32,
        pid: u32,
    }
    "fuse_lk_in" LkIn {
        fh: u64,
        owner: u64,
        lk: FileLock,
        lk_flags: u32,
        padding: u32,
    }
    "fuse_init_in" InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }
    "fuse_init_out" InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        unused: [u32; 7],
    }
    "fuse_interrupt_in" InterruptIn {
        unique: u64,
    }
    "fuse_dirent" Dirent {
        ino: u64,
        off: u64,
        namelen: u32,
        kind: u32,
    }
    "fuse_notify_inval_inode_out" InvalInodeOut {
        ino: u64,
        off: i64,
        len: i64,
    }
    "fuse_notify_store_out" StoreOut {
        nodeid: u64,
        offset: u64,
        size: u32,
        padding: u32,
    }
    "fuse_lseek_in" LseekIn {
        fh: u64,
        offset: u64,
        whence: u32,
        padding: u32,
    }
    "fuse_lseek_out" LseekOut {
        offset: u64,
    }
    "fuse_getxattr_in" GetxattrIn {
        size: u32,
        padding: u32,
    }
    "fuse_getxattr_out" GetxattrOut {
        size: u32,
        padding: u32,
    }
}

pub mod opcode {
    //! The numbers of requests.
    numbers! { OPCODES, "FUSE_", u32, {
        LOOKUP = 1,
        FORGET = 2,
        GETATTR = 3,
        SETATTR = 4,
        READLINK = 5,
        SYMLINK = 6,
        MKNOD = 8,
        MKDIR = 9,
        UNLINK = 10,
        RMDIR = 11,
        RENAME = 12,
        LINK = 13,
        OPEN = 14,
        READ = 15,
        WRITE = 16,
        STATFS = 17,
        RELEASE = 18,
        FSYNC = 20,
        LISTXATTR = 23,
        FLUSH = 25,
        INIT = 26,
        OPENDIR = 27,
        READDIR = 28,
        RELEASEDIR = 29,
        FSYNCDIR = 30,
        GETLK = 31,
        SETLK = 32,
        SETLKW = 33,
        CREATE = 35,
        INTERRUPT = 36,
        DESTROY = 38,
        BATCH_FORGET = 42,
        RENAME2 = 45,
        LSEEK = 46,
    } }
}

pub mod notification {
    //! The numbers of notifications.
    numbers! { NOTIFICATIONS, "FUSE_NOTIFY_", u32, {
        INVAL_INODE = 2,
        STORE = 4,
    } }
}

pub mod feature {
    //! Features that the first request and its answer offer.
    numbers! { FEATURES, "FUSE_", u32, {
        POSIX_LOCKS = 1 << 1,
        ATOMIC_O_TRUNC = 1 << 3,
        BIG_WRITES = 1 << 5,
        FLOCK_LOCKS = 1 << 10,
        AUTO_INVAL_DATA = 1 << 12,
        ASYNC_DIO = 1 << 15,
        PARALLEL_DIROPS = 1 << 18,
        MAX_PAGES = 1 << 22,
    } }
}

pub mod flag {
    //! Flags of requests and answers.
    numbers! { FLAGS, "", u32, {
        FATTR_MODE = 1 << 0,
        FATTR_UID = 1 << 1,
        FATTR_GID = 1 << 2,
        FATTR_SIZE = 1 << 3,
        FATTR_ATIME = 1 << 4,
        FATTR_MTIME = 1 << 5,
        FATTR_FH = 1 << 6,
        FATTR_ATIME_NOW = 1 << 7,
        FATTR_MTIME_NOW = 1 << 8,
        FUSE_GETATTR_FH = 1 << 0,
        FUSE_READ_LOCKOWNER = 1 << 1,
        FUSE_WRITE_KILL_SUIDGID = 1 << 2,
        FOPEN_DIRECT_IO = 1 << 0,
        FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6,
        FUSE_LK_FLOCK = 1 << 0,
    } }
}

/// Where `lseek` seeks to: data, or a hole.
pub const SEEK_DATA: u32 = 3;
pub const SEEK_HOLE: u32 = 4;
/// Types of locks, as `fcntl` numbers them on Linux.
pub const F_RDLCK: u32 = 0;
pub const F_WRLCK: u32 = 1;
pub const F_UNLCK: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const HEADER: &str = "/usr/include/linux/fuse.h";

    #[test]
    fn structures_and_numbers_are_those_of_the_system() {
        let Ok(header) = std::fs::read_to_string(HEADER) else {
            eprintln!("skipped: {HEADER} does not exist");
            return;
        };
        let sizes = sizes(&header);
        for (name, size) in STRUCTURES {
            assert_eq!(sizes.get(*name), Some(size), "{name}");
        }
        let numbers = numbers(&header);
        let flags = [opcode::OPCODES, notification::NOTIFICATIONS, feature::FEATURES, flag::FLAGS];
        for (name, number) in flags.into_iter().flatten() {
            // An old header does not have all numbers.
            assert!(numbers.get(*name).is_none_or(|found| found == number), "{name} is {:?}", numbers.get(*name));
        }
        assert!(opcode::OPCODES.iter().all(|(name, _)| numbers.contains_key(*name)), "opcodes were found");
        assert!(numbers.contains_key("FUSE_POSIX_LOCKS"), "features were found");
    }

    /// The sizes of the header's structures.
    fn sizes(header: &str) -> BTreeMap<String, usize> {
        let mut sizes = BTreeMap::new();
        let mut current: Option<(String, usize)> = None;
        for line in header.lines().map(|line| line.split("/*").next().unwrap_or_default().trim()) {
            if let Some(name) = line.strip_prefix("struct ").and_then(|line| line.strip_suffix(" {")) {
                current = Some((name.to_string(), 0));
            } else if line.starts_with('}') {
                sizes.extend(current.take());
            } else if let (Some((_, size)), Some(field)) = (&mut current, line.strip_suffix(';')) {
                *size += size_of_field(field, &sizes);
            }
        }
        sizes
    }

    /// The size of a field such as `uint32_t unused[11]`, or `struct fuse_attr attr`.
    fn size_of_field(field: &str, sizes: &BTreeMap<String, usize>) -> usize {
        let words: Vec<&str> = field.split_whitespace().collect();
        let (of, name) = match words.as_slice() {
            ["struct", of, name] => (sizes.get(*of).copied().unwrap_or_default(), *name),
            [of, name] => {
                let bits: String = of.chars().filter(char::is_ascii_digit).collect();
                (bits.parse::<usize>().unwrap_or_default() / 8, *name)
            }
            _ => return 0,
        };
        let count = name.split_once('[').map(|(_, count)| count.trim_end_matches(']').parse().unwrap_or(0));
        of * count.unwrap_or(1)
    }

    /// The numbers that the header defines, by `#define NAME (1 << 3)` or `NAME = 3,`.
    fn numbers(header: &str) -> BTreeMap<String, u64> {
        let defined = header.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = match (words.next()?, words.next()?) {
                ("#define", name) | (name, "=") => name,
                _ => return None,
            };
            let value: String = words.take_while(|word| !word.starts_with("/*")).collect();
            let value = value.trim_matches(|sign| "(),".contains(sign)).to_string();
            let value = match value.split_once("<<") {
                Some((one, bits)) => one.parse::<u64>().ok()? << bits.parse::<u32>().ok()?,
                None => value.parse().ok()?,
            };
            Some((name.to_string(), value))
        });
        defined.collect()
    }
}
