//! What administrators ask of their own processes. It is done elsewhere ([`super::file_system_work`]).

use braid_base::{FileSystemId, Generation};
use braid_control_protocol::{Announcement, Question, Tag};
use braid_description::Subject;
use std::collections::BTreeSet;

/// Names an administrator: a host may have two, one of which settles; and those whose ends another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub host: Generation,
    pub number: u64,
}

/// A question for the administrator's own process.
#[derive(Debug)]
pub(super) struct OwnQuestion {
    pub by: Name,
    pub subject: Subject,
    pub tag: Tag,
    pub question: Question,
}

/// What processes are asked, and what they announce.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Nobody has begun with these yet.
    pub asked: Vec<OwnQuestion>,
    /// An announcement ends with the lease of its host.
    pub announced: BTreeSet<(FileSystemId, Announcement, Generation)>,
}
