//! The encoding of the messages of metadata servers.

use crate::golden::{Golden, OBJECT, TICKET};
use braid_base::{BlockRange, Generation, InodeId};
use braid_wire::*;
use bytes::Bytes;

/// From host 7: all sequences below 5 are settled, 6 is over, this is 8.
pub const FILE_REQUEST: &str = "08 07000000 0500000000000000 01000000 0600000000000000 0800000000000000";
/// From start 5, for sequence 8.
pub const FILE_ANSWER: &str = "09 05000000 0800000000000000";
pub const NAME: &str = "03000000 616263";
/// One extent: blocks 4 and 5 of the volume at block 6 of the file.
const EXTENTS: &str = "01000000 0600000000000000 0400000000000000 0200000000000000";
pub const ATTRIBUTES: &str = "2100000000000000 02 ed01 e8030000 64000000 03000000 0600000000000000 0900000000000000 \
    0a00000000000000 ffffffffffffffff 0c00000000000000 01 0600000000000000 34120000";

pub const ERRORS: [FileError; 21] = [
    FileError::Stale,
    FileError::NoSuchName,
    FileError::Exists,
    FileError::NotADirectory,
    FileError::IsADirectory,
    FileError::NotAFile,
    FileError::NotALink,
    FileError::LinkToDirectory,
    FileError::NotEmpty,
    FileError::IntoItself,
    FileError::TooDeep,
    FileError::NameTooLong,
    FileError::InvalidName,
    FileError::TooManyLinks,
    FileError::TooLarge,
    FileError::NoSpace,
    FileError::DirectoryFull,
    FileError::NotAllotted,
    FileError::Lost,
    FileError::Busy,
    FileError::Malformed,
];

/// Every variant of every enum at least once.
pub fn files() -> Vec<Golden> {
    let errors = (1..).zip(ERRORS).map(|(byte, error)| (Err(error), format!("02 {byte:02x}")));
    let rejected = (Err(FileError::Rejected(Rejection::Fenced)), "02 16 01".to_string());
    let results = results().into_iter().map(|(result, hex)| (Ok(result), format!("01 {hex}")));
    let answers = results.chain(errors).chain([rejected]).map(|(reply, hex)| Golden {
        message: Message::FileAnswer(FileAnswer { start: Generation(5), sequence: 8, reply }),
        description: format!("{FILE_ANSWER} {hex}"),
    });
    let requests = commands().into_iter().map(|(command, hex)| {
        let request = FileRequest { host: Generation(7), settled: 5, over: vec![6], sequence: 8, command };
        Golden { message: Message::FileRequest(request), description: format!("{FILE_REQUEST} {hex}") }
    });
    requests.chain(answers).collect()
}

fn commands() -> Vec<(FileCommand, String)> {
    let (parent, inode, new_parent) = (InodeId(6), InodeId(0x21), InodeId(0x21));
    let (name, new_name) = (Bytes::from_static(b"abc"), Bytes::new());
    let create = |node, exclusive| {
        let (name, owner) = (name.clone(), Owner { uid: 1000, gid: 100 });
        FileCommand::Create { parent, name, node, exclusive, owner, mode: 0o644 }
    };
    let created = "e8030000 64000000 a401";
    let mut opened = create(NewInode::Regular, true);
    if let FileCommand::Create { mode, .. } = &mut opened {
        *mode |= OPENS;
    }
    let change = AttributeChange {
        mode: Some(0o755),
        uid: Some(6),
        gid: None,
        atime: Some(NewTime::Now),
        mtime: Some(NewTime::At(FileTime(-1))),
    };
    let extents = vec![FileExtent { at: 6, blocks: BlockRange::new(4, 2) }];
    let (target, runs) = (name.clone(), vec![BlockRange::new(4, 2)]);
    vec![
        (FileCommand::Nothing, "01".into()),
        (FileCommand::Lookup { parent, name: name.clone() }, format!("02 {TICKET} {NAME}")),
        (FileCommand::Stat { inode }, format!("03 {OBJECT}")),
        (FileCommand::ReadDirectory { inode, after: 6, most: 0x1234 }, format!("04 {OBJECT} {TICKET} 34120000")),
        (FileCommand::ReadLink { inode }, format!("05 {OBJECT}")),
        (create(NewInode::Regular, false), format!("06 {TICKET} {NAME} 01 00 {created}")),
        (opened, format!("06 {TICKET} {NAME} 01 01 e8030000 64000000 a481")),
        (create(NewInode::Directory, true), format!("06 {TICKET} {NAME} 02 01 {created}")),
        (create(NewInode::SymbolicLink { target }, true), format!("06 {TICKET} {NAME} 03 {NAME} 01 {created}")),
        (
            create(NewInode::Special { special: SpecialType::BlockDevice, device: 0x1234 }, true),
            format!("06 {TICKET} {NAME} 04 04 34120000 01 {created}"),
        ),
        (FileCommand::Link { inode, parent, name: name.clone() }, format!("07 {OBJECT} {TICKET} {NAME}")),
        (FileCommand::Unlink { parent, name: name.clone() }, format!("08 {TICKET} {NAME}")),
        (FileCommand::RemoveDirectory { parent, name: name.clone() }, format!("09 {TICKET} {NAME}")),
        (
            FileCommand::Rename { parent, name, new_parent, new_name, no_replace: true },
            format!("0a {TICKET} {NAME} {OBJECT} 00000000 01"),
        ),
        (
            FileCommand::SetAttributes { inode, change },
            format!("0b {OBJECT} 01 ed01 01 06000000 00 01 01 01 02 ffffffffffffffff"),
        ),
        (FileCommand::Truncate { inode, size: 6 }, format!("0c {OBJECT} {TICKET}")),
        (FileCommand::Map { inode, from: 6, most: 0x1234 }, format!("0d {OBJECT} {TICKET} 34120000")),
        (FileCommand::Reserve { blocks: 6 }, format!("0e {TICKET}")),
        (
            FileCommand::Attach { inode, extents, size: 6, mtime: FileTime(-1) },
            format!("0f {OBJECT} {EXTENTS} {TICKET} ffffffffffffffff"),
        ),
        (FileCommand::GiveBack { runs }, "10 01000000 0400000000000000 0200000000000000".into()),
        (FileCommand::StatFileSystem, "11".into()),
    ]
}

/// The attributes that [`ATTRIBUTES`] describes.
pub fn attributes() -> FileAttributes {
    FileAttributes {
        inode: InodeId(0x21),
        file_type: FileType::Directory,
        mode: 0o755,
        owner: Owner { uid: 1000, gid: 100 },
        links: 3,
        size: 6,
        blocks: 9,
        atime: FileTime(10),
        mtime: FileTime(-1),
        ctime: FileTime(12),
        parent: Some(InodeId(6)),
        device: 0x1234,
    }
}

fn results() -> Vec<(FileResult, String)> {
    let attributes = attributes();
    let name = Bytes::from_static(b"abc");
    let entry = |file_type| DirectoryEntry { cookie: 6, inode: InodeId(0x21), file_type, name: name.clone() };
    let entries = vec![entry(FileType::Regular), entry(FileType::Special(SpecialType::Socket))];
    let extents = vec![FileExtent { at: 6, blocks: BlockRange::new(4, 2) }];
    let status = FileSystemStatus { blocks: 6, free: 0x21, allotted: 6, inodes: 0x21 };
    vec![
        (FileResult::Done, "01".into()),
        (FileResult::Attributes(attributes), format!("02 {ATTRIBUTES}")),
        (
            FileResult::Entries { entries, more: true },
            format!("03 02000000 {TICKET} {OBJECT} 01 {NAME} {TICKET} {OBJECT} 04 02 {NAME} 01"),
        ),
        (FileResult::Target(name), format!("04 {NAME}")),
        (FileResult::Created { attributes, is_new: true }, format!("05 {ATTRIBUTES} 01")),
        (FileResult::Removed(attributes), format!("06 {ATTRIBUTES}")),
        (FileResult::Renamed { moved: attributes, replaced: None }, format!("07 {ATTRIBUTES} 00")),
        (
            FileResult::Renamed { moved: attributes, replaced: Some(attributes) },
            format!("07 {ATTRIBUTES} 01 {ATTRIBUTES}"),
        ),
        (FileResult::Truncated { attributes, is_done: false }, format!("08 {ATTRIBUTES} 00")),
        (FileResult::Extents { extents, more: true, size: 6 }, format!("09 {EXTENTS} 01 {TICKET}")),
        (FileResult::Reserved(vec![BlockRange::new(4, 2)]), "0a 01000000 0400000000000000 0200000000000000".into()),
        (FileResult::Attached { attributes, next: None }, format!("0b {ATTRIBUTES} 00")),
        (FileResult::Attached { attributes, next: Some(6) }, format!("0b {ATTRIBUTES} 01 {TICKET}")),
        (FileResult::FileSystem(status), format!("0c {TICKET} {OBJECT} {TICKET} {OBJECT}")),
        (FileResult::Opened(attributes), format!("0d {ATTRIBUTES}")),
    ]
}

/// The encoding of a stored reply: the length of its description, the description, the payload.
#[test]
fn a_stored_reply_has_the_bytes_that_are_written_down() {
    let long = Bytes::from(vec![0xb7; 1024]);
    let reply = Ok(FileResult::Target(long.clone()));
    let bytes = [&[0x06, 0, 0, 0][..], &crate::golden::hex("01 04 00040000"), &long].concat();
    assert_eq!(encode_reply(&reply), bytes);
    assert_eq!(decode_reply(&bytes.into()), Ok(reply));
}
