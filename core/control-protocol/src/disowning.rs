//! Making the monitor forget the owners of the shards of a file system, one after the other: an owner is fenced by a take-over, and then
//! the shard is released.

use crate::contract::{Error, Input};
use crate::interface::{Answer, Question, Tag};
use crate::questions::Questions;
use braid_base::{FileSystemId, Generation};
use braid_wire::OwnershipRequest;

/// How often the ownership of a shard is changed. Other processes may take over meanwhile.
const CHANGES_MAX: u32 = 5;

/// The shards that may have an owner, and the question about the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disowning {
    own: Generation,
    left: Vec<FileSystemId>,
    changes: u32,
    asked: Option<Tag>,
}

impl Disowning {
    /// Begins with the first shard; `own` is the host that takes over.
    pub fn new(own: Generation, shards: &[FileSystemId], questions: &mut Questions) -> Disowning {
        let left = shards.iter().rev().copied().collect();
        let mut disowning = Disowning { own, left, changes: 0, asked: None };
        disowning.ask(OwnershipRequest::Inquire, questions);
        disowning
    }

    /// Takes an input. Returns whether no shard has an owner, when that is known.
    pub fn step(&mut self, input: Input, questions: &mut Questions) -> Option<Result<(), Error>> {
        let Input::Answer { tag, answer } = input else { return None };
        if self.asked != Some(tag) {
            return None;
        }
        let Answer::Ownership(now) = answer else { return Some(Err(Error::Question(tag))) };
        let request = match now.owner {
            None => {
                self.left.pop();
                self.changes = 0;
                OwnershipRequest::Inquire
            }
            Some(_) if self.changes == CHANGES_MAX => return Some(Err(Error::Contended)),
            Some(owner) => {
                self.changes += 1;
                match owner == self.own {
                    true => OwnershipRequest::Release { since: now.since },
                    false => OwnershipRequest::TakeOver { from: now },
                }
            }
        };
        self.ask(request, questions);
        self.left.is_empty().then_some(Ok(()))
    }

    fn ask(&mut self, request: OwnershipRequest, questions: &mut Questions) {
        let question = self.left.last().map(|shard| Question::Ownership { file_system: *shard, request });
        self.asked = question.map(|question| questions.ask(question));
    }
}
