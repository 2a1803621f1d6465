//! The shards of a file system: how many metadata servers it has, and how they work together, in the array's description and for a server.
//!
//! The description names protocols and placements, as commands do. A file system with one metadata server has none of this there, so that
//! earlier builds can read it.

use crate::failure::Failure;
use braid_base::limits;
use braid_base::{FileSystemId, ShardId};
use braid_control::{FileSystemEntry, ShardsEntry};
pub use braid_metadata::{Grouping, Protocol};
pub use braid_namespace::Placement;
use braid_namespace::Shards;
use uuid::Uuid;

const PLACEMENTS: [(&str, Placement); 2] = [("parent", Placement::Parent), ("spread", Placement::Spread)];

/// What was chosen for a new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardChoice {
    /// How many metadata servers it has.
    pub servers: u8,
    /// Where new inodes are; none for the usual placement.
    pub placement: Option<Placement>,
    /// How operations on several shards are committed; none for the usual protocol.
    pub protocol: Option<Protocol>,
    /// What operations that are committed at the same time share; none for the usual grouping.
    pub grouping: Option<Grouping>,
}

impl Default for ShardChoice {
    /// One metadata server.
    fn default() -> ShardChoice {
        ShardChoice { servers: 1, placement: None, protocol: None, grouping: None }
    }
}

impl ShardChoice {
    /// Refuses what can't be, and what would have no effect.
    pub fn check(&self) -> Result<(), Failure> {
        if !(1..=limits::SHARDS_MAX).contains(&usize::from(self.servers)) {
            let most = limits::SHARDS_MAX;
            return Err(Failure::usage("bad-servers", format!("a file system has 1 to {most} metadata servers")));
        }
        if self.servers == 1 && (self.placement.is_some() || self.protocol.is_some() || self.grouping.is_some()) {
            let message = "one metadata server has nobody to commit with, and no other shard to place inodes in";
            return Err(Failure::usage("one-server", message).hint("add --servers 2, or leave the option out"));
        }
        Ok(())
    }

    /// The entry in the description; none for one metadata server. `id` is the number of the file system.
    pub(crate) fn entry(&self, id: u16) -> Option<ShardsEntry> {
        (self.servers > 1).then(|| ShardsEntry {
            ids: (id..id + u16::from(self.servers)).collect(),
            placement: placement_name(self.placement.unwrap_or(Placement::Parent)).to_string(),
            commit_protocol: self.protocol.unwrap_or(Protocol::OnePhase).name().to_string(),
            grouping: self.grouping.unwrap_or(Grouping::Operations).name().to_string(),
            names_key: Uuid::new_v4().simple().to_string(),
        })
    }
}

/// The name of a shard's metadata server at the monitor.
pub fn server(entry: &FileSystemEntry, shard: usize) -> Result<FileSystemId, Failure> {
    let servers = entry.servers();
    servers.get(shard).copied().ok_or_else(|| {
        let (name, last) = (&entry.name, servers.len() - 1);
        let message = match last {
            0 => format!("one metadata server serves file system '{name}': it has no shard {shard}"),
            last => format!("file system '{name}' has the shards 0 to {last}"),
        };
        Failure::unreachable("no-such-shard", message)
    })
}

/// How a file system commits operations on several shards.
pub fn protocol(entry: &FileSystemEntry) -> Result<Protocol, Failure> {
    let Some(shards) = &entry.shards else { return Ok(Protocol::OnePhase) };
    Protocol::from_name(&shards.commit_protocol).ok_or_else(|| unknown("commit protocol", &shards.commit_protocol))
}

/// What operations that are committed at the same time share.
pub fn grouping(entry: &FileSystemEntry) -> Result<Grouping, Failure> {
    let Some(shards) = &entry.shards else { return Ok(Grouping::Operations) };
    Grouping::from_name(&shards.grouping).ok_or_else(|| unknown("grouping", &shards.grouping))
}

/// The shards as one of them sees them.
pub(crate) fn of(entry: &FileSystemEntry, shard: usize) -> Result<Shards, Failure> {
    let Some(shards) = &entry.shards else { return Ok(Shards::ONE) };
    let placement = placement_of(&shards.placement).ok_or_else(|| unknown("placement", &shards.placement))?;
    Ok(Shards { own: ShardId(shard as u8), count: shards.ids.len() as u8, placement })
}

/// The key of the hash of names for a file system that is made now.
pub(crate) fn names_key(entry: &FileSystemEntry) -> Result<[u8; 16], Failure> {
    let Some(shards) = &entry.shards else { return Ok(Uuid::new_v4().into_bytes()) };
    let key = Uuid::parse_str(&shards.names_key);
    Ok(key.map_err(|_| unknown("names_key", &shards.names_key))?.into_bytes())
}

pub fn placement_of(name: &str) -> Option<Placement> {
    PLACEMENTS.into_iter().find(|(known, _)| *known == name).map(|(_, placement)| placement)
}

pub fn placement_name(placement: Placement) -> &'static str {
    PLACEMENTS.into_iter().find(|(_, known)| *known == placement).expect("all have names").0
}

fn unknown(what: &str, found: &str) -> Failure {
    Failure::failed("unknown-setting", format!("array.json names a {what} that this build does not know: '{found}'"))
        .hint("use the build that has written it, or a later one")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(choice: &ShardChoice) -> FileSystemEntry {
        FileSystemEntry { id: 7, ..FileSystemEntry::new("home".into(), choice.entry(7)) }
    }

    #[test]
    fn options_without_effect_with_one_server_are_refused() {
        let (one, protocol) = (ShardChoice::default(), Some(Protocol::PresumeNothing));
        assert!(one.check().is_ok() && entry(&one).shards.is_none());
        assert_eq!(ShardChoice { protocol, ..one }.check().unwrap_err().code, "one-server");
        let placement = Some(Placement::Spread);
        assert_eq!(ShardChoice { placement, ..one }.check().unwrap_err().code, "one-server");
        let grouping = Some(Grouping::Log);
        assert_eq!(ShardChoice { grouping, ..one }.check().unwrap_err().code, "one-server");
        assert!(ShardChoice { servers: 8, placement, protocol, grouping }.check().is_ok());
        for servers in [0, 9] {
            assert_eq!(ShardChoice { servers, ..one }.check().unwrap_err().code, "bad-servers");
        }
    }

    #[test]
    fn servers_get_the_chosen_settings() {
        let choice = ShardChoice {
            servers: 2,
            placement: Some(Placement::Spread),
            protocol: Some(Protocol::EarlyPrepare),
            grouping: Some(Grouping::None),
        };
        let entry = entry(&choice);
        let found = [0, 1].map(|shard| of(&entry, shard).unwrap());
        assert_eq!(found.map(|shards| (shards.own, shards.count)), [(ShardId(0), 2), (ShardId(1), 2)]);
        assert!(found.iter().all(|shards| shards.placement == Placement::Spread));
        assert_eq!((protocol(&entry).unwrap(), grouping(&entry).unwrap()), (Protocol::EarlyPrepare, Grouping::None));
        assert_eq!([0, 1].map(|shard| server(&entry, shard).unwrap()), [FileSystemId(7), FileSystemId(8)]);
        assert_eq!(server(&entry, 2).unwrap_err().code, "no-such-shard");
        assert_eq!(names_key(&entry).unwrap(), names_key(&entry).unwrap(), "all shards have the same");
    }
}
