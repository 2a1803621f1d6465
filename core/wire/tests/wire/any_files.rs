//! Strategies that generate arbitrary messages of metadata servers.

use crate::any::{generation, number, ranges, rejection};
use crate::any_objects::value;
use braid_base::InodeId;
use braid_wire::*;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub fn message() -> impl Strategy<Value = Message> {
    let request = (generation(), number(), vec(number(), 0..5), 0..u64::MAX, command()).prop_map(
        |(host, settled, over, sequence, command)| {
            Message::FileRequest(FileRequest { host, settled, over, sequence, command })
        },
    );
    let answer = (generation(), number(), reply())
        .prop_map(|(start, sequence, reply)| Message::FileAnswer(FileAnswer { start, sequence, reply }));
    prop_oneof![4 => request, 4 => answer, 1 => shard()]
}

/// Boxed, because strategies of many parts take much of the stack.
fn shard() -> BoxedStrategy<Message> {
    let question = prop_oneof![
        inode().prop_map(|inode| ShardQuestion::Inode { inode }),
        (inode(), value()).prop_map(|(parent, name)| ShardQuestion::Name { parent, name }),
        Just(ShardQuestion::Moves),
        inode().prop_map(|inode| ShardQuestion::Place { inode }),
    ];
    let shard_reply = prop_oneof![
        attributes().prop_map(ShardReply::Inode).boxed(),
        of(directory_entry()).prop_map(ShardReply::Name).boxed(),
        number().prop_map(ShardReply::Moves),
    ];
    let error = prop::sample::select(&crate::golden_files::ERRORS[..]);
    let shard_reply = prop_oneof![4 => shard_reply.prop_map(Ok), 1 => error.prop_map(Err)];
    let body = prop_oneof![
        value().prop_map(|message| ShardBody::Commit { message }),
        (generation(), number(), question).prop_map(|(start, number, question)| ShardBody::Read {
            start,
            number,
            question
        }),
        (generation(), number(), shard_reply).prop_map(|(start, number, reply)| ShardBody::ReadAnswer {
            start,
            number,
            reply
        }),
        (generation(), number(), number(), number()).prop_map(|(start, round, received, blocks)| {
            ShardBody::SpaceRequest { start, round, received, blocks }
        }),
        (generation(), number(), number(), ranges())
            .prop_map(|(start, round, number, runs)| ShardBody::SpaceTransfer { start, round, number, runs }),
    ];
    (any::<u8>(), body)
        .prop_map(|(from, body)| Message::Shard(ShardMessage { from: braid_base::ShardId(from), body }))
        .boxed()
}

fn command() -> impl Strategy<Value = FileCommand> {
    let short = prop_oneof![
        Just(FileCommand::Nothing),
        (inode(), value()).prop_map(|(parent, name)| FileCommand::Lookup { parent, name }),
        inode().prop_map(|inode| FileCommand::Stat { inode }),
        (inode(), number(), any::<u32>()).prop_map(|(inode, after, most)| FileCommand::ReadDirectory {
            inode,
            after,
            most
        }),
        inode().prop_map(|inode| FileCommand::ReadLink { inode }),
        (inode(), inode(), value()).prop_map(|(inode, parent, name)| FileCommand::Link { inode, parent, name }),
        (inode(), value()).prop_map(|(parent, name)| FileCommand::Unlink { parent, name }),
        (inode(), value()).prop_map(|(parent, name)| FileCommand::RemoveDirectory { parent, name }),
        (inode(), number()).prop_map(|(inode, size)| FileCommand::Truncate { inode, size }),
        (inode(), number(), any::<u32>()).prop_map(|(inode, from, most)| FileCommand::Map { inode, from, most }),
        number().prop_map(|blocks| FileCommand::Reserve { blocks }),
        ranges().prop_map(|runs| FileCommand::GiveBack { runs }),
        Just(FileCommand::StatFileSystem),
    ];
    let create = (inode(), value(), new_inode(), any::<bool>(), owner(), any::<u16>()).prop_map(
        |(parent, name, node, exclusive, owner, mode)| FileCommand::Create {
            parent,
            name,
            node,
            exclusive,
            owner,
            mode,
        },
    );
    let rename = (inode(), value(), inode(), value(), any::<bool>()).prop_map(
        |(parent, name, new_parent, new_name, no_replace)| FileCommand::Rename {
            parent,
            name,
            new_parent,
            new_name,
            no_replace,
        },
    );
    let set = (inode(), change()).prop_map(|(inode, change)| FileCommand::SetAttributes { inode, change });
    let attach = (inode(), vec(extent(), 0..4), number(), time())
        .prop_map(|(inode, extents, size, mtime)| FileCommand::Attach { inode, extents, size, mtime });
    prop_oneof![4 => short, 1 => create, 1 => rename, 1 => set, 1 => attach]
}

fn directory_entry() -> impl Strategy<Value = DirectoryEntry> {
    (number(), inode(), file_type(), value()).prop_map(|(cookie, inode, file_type, name)| DirectoryEntry {
        cookie,
        inode,
        file_type,
        name,
    })
}

pub fn reply() -> impl Strategy<Value = FileReply> {
    let status = (number(), number(), number(), number())
        .prop_map(|(blocks, free, allotted, inodes)| FileSystemStatus { blocks, free, allotted, inodes });
    let result = prop_oneof![
        Just(FileResult::Done),
        attributes().prop_map(FileResult::Attributes),
        (vec(directory_entry(), 0..4), any::<bool>()).prop_map(|(entries, more)| FileResult::Entries { entries, more }),
        value().prop_map(FileResult::Target),
        (attributes(), any::<bool>()).prop_map(|(attributes, is_new)| FileResult::Created { attributes, is_new }),
        attributes().prop_map(FileResult::Opened),
        attributes().prop_map(FileResult::Removed),
        (attributes(), of(attributes())).prop_map(|(moved, replaced)| FileResult::Renamed { moved, replaced }),
        (attributes(), any::<bool>()).prop_map(|(attributes, is_done)| FileResult::Truncated { attributes, is_done }),
        (vec(extent(), 0..4), any::<bool>(), number()).prop_map(|(extents, more, size)| FileResult::Extents {
            extents,
            more,
            size
        }),
        ranges().prop_map(FileResult::Reserved),
        (attributes(), of(number())).prop_map(|(attributes, next)| FileResult::Attached { attributes, next }),
        status.prop_map(FileResult::FileSystem),
    ];
    prop_oneof![4 => result.prop_map(Ok), 1 => error().prop_map(Err)]
}

fn error() -> impl Strategy<Value = FileError> {
    prop_oneof![
        9 => prop::sample::select(&crate::golden_files::ERRORS[..]),
        1 => rejection().prop_map(FileError::Rejected),
    ]
}

fn inode() -> impl Strategy<Value = InodeId> {
    number().prop_map(InodeId)
}

fn new_inode() -> impl Strategy<Value = NewInode> {
    let link = value().prop_map(|target| NewInode::SymbolicLink { target });
    let special = (special_type(), any::<u32>()).prop_map(|(special, device)| NewInode::Special { special, device });
    prop_oneof![Just(NewInode::Regular), Just(NewInode::Directory), link, special]
}

fn special_type() -> impl Strategy<Value = SpecialType> {
    prop::sample::select(&SpecialType::ALL[..])
}

fn file_type() -> impl Strategy<Value = FileType> {
    prop_oneof![
        Just(FileType::Regular),
        Just(FileType::Directory),
        Just(FileType::SymbolicLink),
        special_type().prop_map(FileType::Special),
    ]
}

fn owner() -> impl Strategy<Value = Owner> {
    (any::<u32>(), any::<u32>()).prop_map(|(uid, gid)| Owner { uid, gid })
}

fn time() -> impl Strategy<Value = FileTime> {
    any::<i64>().prop_map(FileTime)
}

fn change() -> impl Strategy<Value = AttributeChange> {
    let new_time = || of(prop_oneof![Just(NewTime::Now), time().prop_map(NewTime::At)]);
    (of(any::<u16>()), of(any::<u32>()), of(any::<u32>()), new_time(), new_time())
        .prop_map(|(mode, uid, gid, atime, mtime)| AttributeChange { mode, uid, gid, atime, mtime })
}

fn extent() -> impl Strategy<Value = FileExtent> {
    (number(), crate::any::range()).prop_map(|(at, blocks)| FileExtent { at, blocks })
}

fn attributes() -> impl Strategy<Value = FileAttributes> {
    let numbers = (any::<u16>(), any::<u32>(), number(), number(), any::<u32>());
    (inode(), file_type(), owner(), numbers, (time(), time(), time()), of(inode())).prop_map(
        |(inode, file_type, owner, (mode, links, size, blocks, device), (atime, mtime, ctime), parent)| {
            FileAttributes { inode, file_type, mode, owner, links, size, blocks, atime, mtime, ctime, parent, device }
        },
    )
}
