//! How often hostile messages are of a kind: most are of those that get far.

use braid_base::NodeId;

/// The messages that a node handles, each as often as it is chosen.
pub(super) fn usual_messages(to: NodeId) -> &'static [&'static str] {
    match to {
        NodeId::Device(_) => &["Request", "Request", "Request", "Request", "Partial", "MonitorAnswer"],
        NodeId::Host(_) => &["Answer", "Answer", "Answer", "LockAnswer", "MonitorAnswer"],
        NodeId::LockServer(_) => &["LockRequest", "LockRequest", "LockRequest", "MonitorAnswer"],
        NodeId::Monitor => &["MonitorRequest"],
        NodeId::MetadataServer(_) => &["FileRequest", "FileRequest", "Shard", "LockRequest", "MonitorAnswer"],
    }
}

/// How often a variant is chosen; those that are not named here: four times.
const WEIGHTS: [(&str, &str, u64); 32] = [
    ("Command", "Write", 16),
    ("Command", "Read", 8),
    ("Command", "Prewrite", 8),
    ("Command", "Execute", 8),
    ("Command", "Decide", 8),
    ("Command", "Manage", 8),
    ("Task", "CreateObject", 8),
    ("Task", "RemoveObject", 1),
    ("Task", "SetOrdering", 2),
    ("Content", "Data", 32),
    ("Content", "Hole", 8),
    ("Want", "Data", 8),
    ("WriteMode", "Intent", 8),
    ("Reply", "Data", 12),
    ("Reply", "Written", 12),
    ("Refusal", "TooLate", 8),
    ("Rejection", "WrongEpoch", 8),
    ("MonitorCommand", "Renew", 24),
    ("MonitorCommand", "Ownership", 8),
    ("MonitorReply", "Lease", 20),
    ("MemberState", "In", 14),
    ("LockCommand", "Lock", 20),
    ("LockCommand", "Unlock", 8),
    ("LockTerm", "Cached", 8),
    ("LockReply", "Granted", 12),
    ("FileCommand", "Create", 12),
    ("FileCommand", "Reserve", 8),
    ("NewInode", "Regular", 8),
    ("ShardBody", "Commit", 24),
    ("ShardPart", "Make", 8),
    ("When", "Always", 8),
    ("Action", "Create", 8),
];

pub(super) fn weight(kind: &str, variant: &str) -> u64 {
    let found = WEIGHTS.iter().find(|(of, name, _)| (*of, *name) == (kind, variant));
    found.map_or(4, |(_, _, weight)| *weight)
}

/// How often a flag is set, or an optional value is there.
pub(super) fn per_cent(field: &str) -> u64 {
    match field {
        "failing" | "paused" => 5,
        "membership" => 15,
        "waited" | "busy" => 25,
        "next" | "no_replace" => 30,
        "redundant" | "recovery_coordinator" => 75,
        _ => 50,
    }
}
