//! Commands on their way to the store. They take effect in the order of their arrival. Answers are lost, and commands arrive late.

use super::ControlPlane;
use super::administrator_state::Name;
use super::context::{Action, Context, Event, Report};
use crate::prelude::*;
use braid_control_protocol::{Answer, Command, HostLease, ServerLease, Tag};
use braid_description::{Applied, ArrayDescription, Refusal};
use braid_host_leases::Lease;

/// A command whose answer is missing for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);
/// A watch answers after this time.
const WATCHED: Duration = Duration::from_millis(20);

impl ControlPlane {
    /// Sends a command to the store; in most cases, its answer comes back.
    pub(super) fn send_command(
        &mut self,
        cx: &mut Context,
        (by, subject): (Name, Subject),
        tag: Tag,
        command: Command,
    ) {
        // A watch answers after a while, whatever has happened.
        let way = self.way() + if command == Command::Watch { WATCHED } else { Duration::ZERO };
        let fate = match &self.faults {
            Some(faults) if faults.store_faults > 0 => self.rng.below(1000 / faults.store_faults),
            _ => u64::MAX,
        };
        let unknown = Event::Answer { to: by, tag, answer: Answer::Unknown };
        match fate {
            // The answer is lost, the command is lost, or the command arrives after it was given up.
            0 => {
                cx.later(way, Event::Command { by, subject, command, answered: None });
                cx.later(UNANSWERED, unknown);
                self.count("answers of the store lost");
            }
            1 => cx.later(UNANSWERED, unknown),
            2 => {
                let late = UNANSWERED + Duration::from_millis(self.rng.below(2_000));
                cx.later(late, Event::Command { by, subject, command, answered: None });
                cx.later(UNANSWERED, unknown);
                self.count("commands for the store late");
            }
            _ => cx.later(way, Event::Command { by, subject, command, answered: Some(tag) }),
        }
    }

    /// Returns the answer, if there is one already.
    pub(super) fn on_command(
        &mut self,
        cx: &mut Context,
        subject: &Subject,
        command: Command,
        asker: (Name, Option<Tag>),
    ) -> Option<Answer> {
        let only_asks = matches!(
            command,
            Command::Read | Command::ReadDevice | Command::Watch | Command::ListHosts | Command::Confirm { .. }
        );
        if !only_asks && self.is_unwritable(cx.now()) {
            return Some(Answer::Unknown);
        }
        let (now, lease, mut table) = (cx.lease_time(), cx.lease, self.store.leases.table());
        Some(match command {
            Command::ListServers => {
                let as_seen = |(host, seen): (Generation, &Lease<Report>)| {
                    let report = seen.heartbeat.report.clone()?;
                    Some(ServerLease { is_live: table.is_live(host, &now, lease), ..report })
                };
                let leases = table.leases().filter_map(as_seen).collect();
                let entry = subject.file_system(self.store.description());
                let announced = entry.map(|entry| self.announced(cx, entry.id())).unwrap_or_default();
                Answer::Servers { leases, announced }
            }
            Command::Watch => Answer::Yes,
            Command::ListHosts => {
                let as_seen = |(host, seen): (Generation, &Lease<Report>)| HostLease {
                    host,
                    is_live: table.is_live(host, &now, lease),
                    uses_volumes: true,
                    confirmed: seen.heartbeat.confirmed,
                };
                Answer::Hosts(table.leases().map(as_seen).collect())
            }
            Command::EndLease { host } => {
                let (end, writes) = table.expire_one(host, &now, lease);
                self.store.leases.make(&table, writes);
                Answer::Lease(end)
            }
            Command::ForgetLease { host } => {
                self.forget_leases(cx, &[host], usize::MAX);
                Answer::Yes
            }
            command => return self.execute(cx, subject, command, asker),
        })
    }

    /// Executes a command about the description, and stores the next one, or asks the leader to do that.
    fn execute(
        &mut self,
        cx: &mut Context,
        subject: &Subject,
        command: Command,
        (by, answered): (Name, Option<Tag>),
    ) -> Option<Answer> {
        let replaced = match &command {
            Command::Replace { record, .. } => Some(record.clone()),
            _ => None,
        };
        let Applied { answer, next } = match self.store.description().apply(subject, command) {
            Ok(applied) => applied,
            // The names of the volumes of a file system are free only for the host that creates it.
            Err(Refusal::NameOfFileSystem { .. } | Refusal::VolumeExists { .. } | Refusal::VolumeInTheWay { .. }) => {
                self.count("name of a volume refused");
                return Some(Answer::Failed);
            }
            Err(refusal) => panic!("there is room for everything: {refusal}"),
        };
        let Some(next) = next else { return Some(answer) };
        if cx.asks_leader {
            cx.actions.push(Action::Replace(next, (by, answered, answer)));
            return None;
        }
        self.store.put(&next);
        if let Some(volume) = subject.volume() {
            let record = self.store.record(volume).cloned();
            assert_eq!(record, replaced, "the store has what was written");
            cx.actions.push(Action::Follow(volume, record));
        }
        Some(answer)
    }

    /// The registry has another description.
    pub(crate) fn follow_description(&mut self, cx: &mut Context, next: &ArrayDescription) {
        let before: BTreeMap<_, _> =
            self.store.records().into_iter().map(|record| (record.volume.id, record)).collect();
        self.store.put(next);
        let now: BTreeMap<_, _> = self.store.records().into_iter().map(|record| (record.volume.id, record)).collect();
        let all: BTreeSet<VolumeId> = before.keys().chain(now.keys()).copied().collect();
        for volume in all.into_iter().filter(|volume| before.get(volume) != now.get(volume)) {
            cx.actions.push(Action::Follow(volume, now.get(&volume).cloned()));
        }
    }
}
