//! The state of the administrators: what they perform, and what they ask of their own processes, which is done elsewhere
//! ([`super::file_system_work`]).

use crate::prelude::*;
use braid_control_protocol::{Announcement, Done, Error, Operation, OperationKind, Question, Tag};

/// Names an administrator: a host may have several, of which some settle, and some wait for the ends of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub host: Generation,
    pub number: u64,
}

#[derive(Debug)]
pub(crate) struct Administrator {
    pub operation: Operation,
    pub subject: Subject,
    /// It does not settle what another one has begun.
    pub is_own: bool,
}

impl Administrator {
    pub fn of_its_own(subject: Subject, operation: Operation) -> Administrator {
        Administrator { operation, subject, is_own: true }
    }

    pub fn recovering(subject: Subject, operation: Operation) -> Administrator {
        Administrator { operation, subject, is_own: false }
    }

    pub fn is_replacement(&self) -> bool {
        matches!(self.operation.kind(), OperationKind::Replacement(_))
    }
}

/// How an administrator ended.
pub(crate) type End = (Name, Subject, Result<Done, Error>);

/// A question for the administrator's own process.
#[derive(Debug)]
pub(crate) struct OwnQuestion {
    pub by: Name,
    pub subject: Subject,
    pub tag: Tag,
    pub question: Question,
}

/// The administrators, what they ask of their own processes, and what these announce.
#[derive(Debug, Default)]
pub(super) struct AdministratorState {
    pub working: BTreeMap<Name, Administrator>,
    pub last: u64,
    pub ended: Vec<End>,
    /// The administrator that was to replace a disk has died, or could not do it.
    pub replacement_ended: bool,
    /// Nobody has begun with these yet.
    pub asked: Vec<OwnQuestion>,
    /// An announcement ends with the lease of its host.
    pub announced: BTreeSet<(FileSystemId, Announcement, Generation)>,
}

impl AdministratorState {
    pub fn of(&self, host: Generation) -> impl Iterator<Item = &Administrator> + '_ {
        self.working.iter().filter(move |(name, _)| name.host == host).map(|(_, process)| process)
    }
}
