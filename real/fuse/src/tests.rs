//! Tests of the codec against a naive kernel, which encodes and decodes field by field.

use crate::SpaceStatus;
use crate::abi::{FileLock, LseekIn, SetattrIn};
use crate::decode::{DecodeError, LockRequest, Operation, decode};
use crate::encode::{Frame, Listing, Reply, file_time};
use crate::fuzz::{fuzz_directory, fuzz_request};
use crate::negotiation::{Negotiated, negotiate};
use braid_base::InodeId;
use braid_wire::{FileAttributes, FileSystemStatus, FileTime, FileType, Owner};
use bytes::{Buf, Bytes};
use proptest::prelude::*;
use rustix::io::Errno;
use zerocopy::IntoBytes;

const UNIQUE: u64 = 0x1234_5678_9abc;

// ---- requests ----

fn request(opcode: u32, body: &[u8]) -> Bytes {
    let mut bytes = Vec::new();
    bytes.extend((40 + body.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(UNIQUE.to_ne_bytes());
    bytes.extend(9u64.to_ne_bytes());
    [1000u32, 100, 4711, 0].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes.extend(body);
    bytes.into()
}

/// The opcode and the body of a request, as the kernel encodes it.
fn encoded(operation: &Operation) -> (u32, Vec<u8>) {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let long = |number: u64| number.to_ne_bytes().to_vec();
    let text = |name: &Bytes| [name, &[0][..]].concat();
    let lock = |request: &LockRequest| {
        let FileLock { start, end, kind, pid } = request.lock;
        let numbers = [request.handle, request.owner, start, end].map(long).concat();
        [numbers, words(&[kind, pid, request.flags, 0])].concat()
    };
    match operation {
        Operation::Lookup(name) => (1, text(name)),
        Operation::Forget(others) => {
            let forgotten = others.iter().flat_map(|inode| [long(*inode), long(1)].concat());
            (42, words(&[others.len() as u32, 0]).into_iter().chain(forgotten).collect())
        }
        Operation::GetAttributes(handle) => {
            (3, [words(&[u32::from(handle.is_some()), 0]), long(handle.unwrap_or(0))].concat())
        }
        Operation::SetAttributes(change) => (4, change.as_bytes().to_vec()),
        Operation::ReadLink => (5, Vec::new()),
        Operation::SymbolicLink { name, target } => (6, [text(name), text(target)].concat()),
        Operation::MakeNode { mode, device, name } => (8, [words(&[*mode, *device, 0o22, 0]), text(name)].concat()),
        Operation::MakeDirectory { mode, name } => (9, [words(&[*mode, 0o22]), text(name)].concat()),
        Operation::Unlink(name) => (10, text(name)),
        Operation::RemoveDirectory(name) => (11, text(name)),
        Operation::Rename { new_parent, flags: 0, name, new_name } => {
            (12, [long(*new_parent), text(name), text(new_name)].concat())
        }
        Operation::Rename { new_parent, flags, name, new_name } => {
            (45, [long(*new_parent), words(&[*flags, 0]), text(name), text(new_name)].concat())
        }
        Operation::Link { inode, name } => (13, [long(*inode), text(name)].concat()),
        Operation::Open(flags) => (14, words(&[*flags, 0])),
        Operation::Read { handle, offset, length, for_pages } => {
            let size = words(&[*length, u32::from(!for_pages) << 1]);
            (15, [long(*handle), long(*offset), size, long(5), words(&[0, 0])].concat())
        }
        Operation::ListAttributes(room) => (23, words(&[*room, 0])),
        Operation::Write { handle, offset, flags, loses_privileges, data } => {
            let size = words(&[data.len() as u32, u32::from(*loses_privileges) << 2]);
            (16, [long(*handle), long(*offset), size, long(5), words(&[*flags, 0]), data.to_vec()].concat())
        }
        Operation::StatFileSystem => (17, Vec::new()),
        Operation::Release(handle) => (18, [long(*handle), words(&[0, 0]), long(5)].concat()),
        Operation::Sync(handle) => (20, [long(*handle), words(&[0, 0])].concat()),
        Operation::Flush { handle, owner } => (25, [long(*handle), words(&[0, 0]), long(*owner)].concat()),
        Operation::Init { major, minor, flags } => {
            (26, [words(&[*major, *minor, 1 << 17, *flags, 0]), vec![0; 44]].concat())
        }
        Operation::OpenDirectory => (27, words(&[0, 0])),
        Operation::ReadDirectory { offset, room } => {
            (28, [long(3), long(*offset), words(&[*room, 0]), long(0), words(&[0, 0])].concat())
        }
        Operation::ReleaseDirectory => (29, [long(3), words(&[0, 0]), long(5)].concat()),
        Operation::SyncDirectory => (30, [long(3), words(&[0, 0])].concat()),
        Operation::TestLock(request) => (31, lock(request)),
        Operation::SetLock { lock: request, waits: false } => (32, lock(request)),
        Operation::SetLock { lock: request, waits: true } => (33, lock(request)),
        Operation::Create { flags, mode, name } => (35, [words(&[*flags, *mode, 0o22, 0]), text(name)].concat()),
        Operation::Interrupt(unique) => (36, long(*unique)),
        Operation::Destroy => (38, Vec::new()),
        Operation::Seek(seek) => (46, seek.as_bytes().to_vec()),
        Operation::Unknown => (43, vec![0; 32]),
    }
}

fn name() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(1..=255u8, 1..60).prop_map(Bytes::from)
}

fn lock() -> impl Strategy<Value = LockRequest> {
    (any::<[u64; 4]>(), 0..3u32, 0..2u32).prop_map(|([handle, owner, one, other], kind, flags)| {
        let lock = FileLock { start: one.min(other), end: one.max(other), kind, pid: 7 };
        LockRequest { handle, owner, lock, flags }
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let (data, names) = (prop::collection::vec(any::<u8>(), 0..9000), (name(), name()));
    let parts = (0..32, any::<[u64; 5]>(), any::<[u32; 7]>(), any::<bool>(), names, lock(), data);
    parts.prop_map(|(kind, numbers, words, is, (name, other), lock, data)| {
        let [number, offset, size, lock_owner, mtime] = numbers;
        let [word, mode, uid, gid, atimensec, mtimensec, ctimensec] = words;
        match kind {
            0 => Operation::Lookup(name),
            1 => Operation::SymbolicLink { name, target: other },
            2 => Operation::MakeNode { mode, device: word, name },
            3 => Operation::MakeDirectory { mode, name },
            4 => Operation::Unlink(name),
            5 => Operation::RemoveDirectory(name),
            6 => Operation::Rename { new_parent: number, flags: word % 4, name, new_name: other },
            7 => Operation::Link { inode: number, name },
            8 => Operation::Create { flags: word, mode, name },
            9 => Operation::Open(word),
            10 => Operation::Read { handle: number, offset, length: word, for_pages: is },
            11 => Operation::ListAttributes(word),
            12 => {
                let (handle, flags, data) = (number, word, data.into());
                Operation::Write { handle, offset, flags, loses_privileges: is, data }
            }
            13 => Operation::Flush { handle: number, owner: lock_owner },
            14 => Operation::Release(number),
            15 => Operation::Sync(number),
            16 => Operation::Seek(LseekIn { fh: number, offset, whence: word, padding: 0 }),
            17 => Operation::ReadDirectory { offset, room: word },
            18 => Operation::TestLock(lock),
            19 => Operation::SetLock { lock, waits: is },
            20 => {
                let (fh, atime, mtime) = (number, offset as i64, mtime as i64);
                let times = SetattrIn { atime, mtime, atimensec, mtimensec, ctimensec, ..SetattrIn::default() };
                Operation::SetAttributes(SetattrIn { valid: word, fh, size, lock_owner, mode, uid, gid, ..times })
            }
            21 => Operation::Interrupt(number),
            22 => Operation::Init { major: 7, minor: word, flags: mode },
            23 => Operation::GetAttributes(is.then_some(number)),
            24 => Operation::Forget(numbers[..word as usize % 6].to_vec()),
            25 => Operation::ReadLink,
            26 => Operation::StatFileSystem,
            27 => Operation::OpenDirectory,
            28 => Operation::ReleaseDirectory,
            29 => Operation::SyncDirectory,
            30 => Operation::Destroy,
            _ => Operation::Unknown,
        }
    })
}

proptest! {
    #[test]
    fn requests_are_decoded_as_the_kernel_encodes_them(operation in operation(), cut in any::<prop::sample::Index>()) {
        let (opcode, body) = encoded(&operation);
        let decoded = decode(&request(opcode, &body)).expect("it is well-formed");
        let header = decoded.header;
        prop_assert_eq!((header.unique, header.nodeid, header.uid, header.gid), (UNIQUE, 9, 1000, 100));
        prop_assert_eq!(&decoded.operation, &operation);

        let may_be_shorter = matches!(operation, Operation::Init { .. } | Operation::Unknown);
        if !body.is_empty() && !may_be_shorter {
            let part = request(opcode, &body[..cut.index(body.len())]);
            prop_assert_eq!(decode(&part), Err(DecodeError::Malformed { unique: UNIQUE, opcode }));
        }
    }

    #[test]
    fn arbitrary_bytes_are_a_request_or_an_error(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_request(&data);
    }

    #[test]
    fn a_directory_is_listed_as_far_as_there_is_room(data in prop::collection::vec(any::<u8>(), 0..100)) {
        fuzz_directory(&data);
    }

    #[test]
    fn times_are_what_was_set(time in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX)]) {
        let attributes = FileAttributes { mtime: FileTime(time), ..attributes() };
        let mut body = answer(Reply::Attributes(attributes));
        body.advance(16 + 32);
        let seconds = body.get_i64_ne();
        body.advance(8 + 4);
        prop_assert_eq!(file_time(seconds, body.get_u32_ne()), FileTime(time));
    }
}

#[test]
fn times_beyond_those_of_files_become_the_first_or_the_last() {
    assert_eq!(file_time(i64::MAX, 0), FileTime(i64::MAX));
    assert_eq!(file_time(i64::MIN, 999_999_999), FileTime(i64::MIN));
}

#[test]
fn a_request_with_another_length_is_refused() {
    let whole = request(1, b"name\0");
    assert_eq!(decode(&whole.slice(..44)), Err(DecodeError::Length { unique: UNIQUE, length: 44 }));
    assert_eq!(decode(&whole.slice(..39)), Err(DecodeError::NoHeader { length: 39 }));
    for opcode in [1, 10, 11] {
        let two_names = request(opcode, b"name\0more\0");
        assert_eq!(decode(&two_names), Err(DecodeError::Malformed { unique: UNIQUE, opcode }));
    }
    // More inodes to forget than are listed.
    let forget = request(42, &[&[2, 0, 0, 0, 0, 0, 0, 0][..], &[1; 16]].concat());
    assert_eq!(decode(&forget), Err(DecodeError::Malformed { unique: UNIQUE, opcode: 42 }));
}

#[test]
fn a_lock_that_ends_before_it_begins_is_refused() {
    let lock = FileLock { start: 5, end: 4, kind: 1, pid: 0 };
    let operation = Operation::TestLock(LockRequest { handle: 1, owner: 2, lock, flags: 0 });
    let (opcode, body) = encoded(&operation);
    assert_eq!(decode(&request(opcode, &body)), Err(DecodeError::Malformed { unique: UNIQUE, opcode }));
}

// ---- the first request ----

#[test]
fn versions_and_features_are_negotiated() {
    let all = u32::MAX;
    let agreed = |major, minor| match negotiate(major, minor, all) {
        Ok(Negotiated::Agreed(init)) => init,
        other => panic!("{other:?}"),
    };
    assert_eq!(agreed(7, 38).minor, 38);
    let init = agreed(7, 99);
    assert_eq!((init.major, init.minor), (7, 45));
    assert_eq!((init.max_write, init.max_pages, init.max_readahead), (1 << 20, 256, 1 << 20));
    // Neither write-back cache nor READDIRPLUS nor a second word of features.
    assert_eq!(init.flags & (1 << 16 | 1 << 13 | 1 << 14 | 1 << 30), 0);
    assert_eq!(init.flags & (1 << 1 | 1 << 10 | 1 << 3), 1 << 1 | 1 << 10 | 1 << 3);
    assert!(matches!(negotiate(8, 0, all), Ok(Negotiated::AskAgain(init)) if init.major == 7));
    for (major, minor, flags) in [(6, 99, all), (7, 30, all), (7, 38, all & !(1 << 10)), (7, 38, all & !(1 << 1))] {
        assert!(negotiate(major, minor, flags).is_err(), "{major}.{minor} {flags:x}");
    }
}

// ---- answers ----

pub(crate) fn attributes() -> FileAttributes {
    FileAttributes {
        inode: InodeId(77),
        file_type: FileType::Regular,
        mode: 0o4755,
        owner: Owner { uid: 1, gid: 2 },
        links: 3,
        size: 5000,
        blocks: 2,
        atime: FileTime(-1),
        mtime: FileTime(2_000_000_003),
        ctime: FileTime(0),
        parent: None,
        device: 0x501,
    }
}

/// An answer as the kernel receives it, without its header, which is checked.
fn answer(reply: Reply) -> Bytes {
    let mut bytes = written(&Frame::answer(UNIQUE, reply));
    assert_eq!((bytes.get_u32_ne() as usize, bytes.get_i32_ne()), (bytes.len() + 8, 0));
    assert_eq!(bytes.get_u64_ne(), UNIQUE);
    bytes
}

fn written(frame: &Frame) -> Bytes {
    let bytes = frame.slices().iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>();
    assert_eq!(bytes.len(), frame.len());
    bytes.into()
}

fn longs(mut bytes: Bytes) -> Vec<u64> {
    std::iter::from_fn(|| bytes.has_remaining().then(|| bytes.get_u64_ne())).collect()
}

/// Two words that fill a number.
fn pair(one: u32, other: u32) -> u64 {
    u64::from_ne_bytes([one.to_ne_bytes(), other.to_ne_bytes()].concat().try_into().expect("eight bytes"))
}

#[test]
fn an_entry_is_encoded_field_by_field() {
    let attr = [
        vec![77, 5000, 16, -1i64 as u64, 2, 0, pair(999_999_999, 3), pair(0, 0o104_755)],
        vec![pair(3, 1), pair(2, 0x501), pair(4096, 0)],
    ]
    .concat();
    // The number of the inode, and times for which it may be cached.
    let entry = [vec![77, 0, 0, 0, 0], attr.clone()].concat();
    assert_eq!(longs(answer(Reply::Entry(attributes()))), entry);
    assert_eq!(longs(answer(Reply::Attributes(attributes()))), [vec![0, 0], attr].concat());
    let open = vec![5, pair(1 | 1 << 6, 0)];
    assert_eq!(longs(answer(Reply::Created(attributes(), 5))), [entry, open.clone()].concat());
    assert_eq!(longs(answer(Reply::Opened(5))), open);
    let directory = FileAttributes { file_type: FileType::Directory, mode: 0, ..attributes() };
    assert_eq!(longs(answer(Reply::Attributes(directory)))[9], pair(0, 0o040_000));
}

#[test]
fn other_answers_are_encoded_field_by_field() {
    assert_eq!(answer(Reply::Done), b""[..]);
    assert_eq!(longs(answer(Reply::Written(9))), [pair(9, 0)]);
    assert_eq!(longs(answer(Reply::Found(9))), [9]);
    let lock = FileLock { start: 1, end: 2, kind: 1, pid: 3 };
    assert_eq!(longs(answer(Reply::Lock(lock))), [1, 2, pair(1, 3)]);
    let status = FileSystemStatus { blocks: 10, free: 6, allotted: 1, inodes: 4 };
    for (free_inodes, free) in [(None, 6), (Some(2), 2), (Some(0), 0)] {
        let expected = [10, 6, 6, 4 + free, free, pair(4096, 255), pair(4096, 0), 0, 0, 0];
        assert_eq!(longs(answer(Reply::Status(SpaceStatus { status, free_inodes }))), expected);
    }
    assert_eq!(answer(Reply::Data(vec![Bytes::from("ab"), Bytes::new(), Bytes::from("c")])), b"abc"[..]);
    // More buffers than the system takes at once.
    let many: Vec<Bytes> = (0..3000u32).map(|number| Bytes::from(vec![number as u8; 2])).collect();
    let frame = Frame::answer(UNIQUE, Reply::Data(many.clone()));
    assert!(frame.slices().len() <= 1024);
    assert_eq!(written(&frame).slice(16..), many.concat());
    let error = written(&Frame::answer(UNIQUE, Reply::Error(Errno::NOENT)));
    assert_eq!(longs(error), [pair(16, -2i32 as u32), UNIQUE]);
}

#[test]
fn directory_entries_are_padded() {
    let mut listing = Listing::new(64);
    assert!(listing.push(InodeId(3), 300, FileType::Directory, b"ab"));
    assert!(!listing.push(InodeId(4), 301, FileType::Regular, &[b'x'; 9]), "it does not fit");
    assert!(listing.push(InodeId(4), 301, FileType::SymbolicLink, b"12345678"));
    let entries = listing.finish();
    let first = [&[3u64, 300, pair(2, 4)].map(u64::to_ne_bytes).concat()[..], b"ab\0\0\0\0\0\0"].concat();
    let second = [&[4u64, 301, pair(8, 10)].map(u64::to_ne_bytes).concat()[..], b"12345678"].concat();
    assert_eq!(entries, [first, second].concat());
}

#[test]
fn notifications_are_encoded_field_by_field() {
    let inode = written(&Frame::invalidate_inode(InodeId(9), -1, 0));
    assert_eq!(longs(inode), [pair(40, 2), 0, 9, -1i64 as u64, 0]);
}
