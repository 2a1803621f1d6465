//! Stories of a device: a table of calls, each with the answers that follow from it; of equal answers to a host, the first.
//!
//! `a1` is transaction 1 of host a. Where it is named first, it has a stamp: `a1@10` is ten microseconds ahead of the clock. `pre 4+3` is a
//! pre-write of three blocks from block 4 on, `update 5` one that reads them, too; `write 5 =7` fills the block with sevens, and `prepare 5 =7`
//! is a pre-write and a write. `a1 ends` says that host a commits it, with its next request; `b commits a1` is a decision of another host.

use crate::bench::*;
use crate::execution::{changes, content_of, contributes, execute, gathers};
use braid_blocks::Base;
pub use braid_stories::{Told, stories};
use braid_stories::{first_word, number_of, span_of, state_of, yes_or_no};
use braid_wire::Progress;
use std::collections::BTreeSet;

pub struct Story {
    pub bench: Bench,
    /// The object of the story's transactions.
    object: (ObjectId, Ordering),
    actors: BTreeMap<String, Actor>,
}

/// Tells a story of transactions on the object that is ordered by timestamps, and returns it for another part.
pub fn tell(bench: Bench, parts: &[(&str, &str)]) -> Story {
    tell_of((OBJECT, Ordering::Timestamp), bench, parts)
}

/// The same on another object.
pub fn tell_of(object: (ObjectId, Ordering), bench: Bench, parts: &[(&str, &str)]) -> Story {
    Story { bench, object, actors: BTreeMap::new() }.told(parts)
}

/// A story of a new device.
pub fn story(parts: &[(&str, &str)]) -> Story {
    tell(Bench::new(), parts)
}

impl Told for Story {
    fn call(&mut self, text: &str) -> Vec<String> {
        self.execute(text).unwrap_or_else(|| self.answers())
    }
}

impl Story {
    pub fn actor(&self, name: &str) -> Actor {
        self.actors[name]
    }

    /// Executes a call. Returns the answer to a question about the device itself.
    fn execute(&mut self, text: &str) -> Option<Vec<String>> {
        let words: Vec<&str> = text.split(' ').collect();
        let (bench, after) = (&mut self.bench, |mark: char| words.iter().find_map(|word| word.strip_prefix(mark)));
        match words[..] {
            ["pass", span] => bench.pass(span_of(span)),
            ["lease", span] => bench.pass_with_lease(span_of(span)),
            // Time passes in which only these hosts speak.
            [ref hosts @ .., "live" | "lives", span] => {
                let end = bench.now.time.after(span_of(span));
                while bench.now.time < end {
                    bench.pass(Settings::default().heartbeat);
                    hosts.iter().for_each(|host| bench.say(host_of(host), Command::Heartbeat));
                }
            }
            ["restart"] => bench.restart(),
            ["tell"] => bench.tell(None),
            ["stall"] => bench.stalled = true,
            ["resume"] => bench.resume_disk(),
            [name] if name.contains('@') => {
                self.known(name);
            }
            ["enter", ref states @ ..] => bench.enter(|membership| {
                states.iter().map(|text| state_of(text)).for_each(|(number, state)| stands(membership, number, state));
            }),
            ["fence", host] => bench.enter(|membership| membership.fence.also.extend([host_of(host)])),
            ["epoch", epoch] => bench.epoch = Epoch(number_of(epoch)),
            ["leased?"] => return Some(yes_or_no(bench.device.has_lease(bench.now.time))),
            ["transactions?"] => return Some(vec![bench.device.transactions().count().to_string()]),
            ["orphans?"] => return Some(vec![bench.device.orphans().to_string()]),
            ["suspects?"] => return Some(vec![bench.device.suspects().to_string()]),
            ["waiting?"] => return Some(vec![bench.device.waiting().to_string()]),
            ["locks?"] => return Some(vec![bench.device.locks().to_string()]),
            ["count", name] => return Some(vec![bench.counter(name).to_string()]),
            [host, "beats"] => bench.say(host_of(host), Command::Heartbeat),
            [host, "settles", mark] => bench.settle(host_of(host), number_of(mark)),
            [host, "is", "over", sequence] => bench.say_over(host_of(host), vec![number_of(sequence)]),
            [device, "sends", name, ..] => {
                let actor = self.known(name);
                let range = words.iter().position(|word| *word == "for").map_or("5", |at| words[at + 1]);
                let range = range_of(range);
                let pieces = vec![Piece { range, content: filled(range, after('=').map_or(1, number_of)) }];
                let (epoch, transaction) = (self.bench.epoch, actor.id);
                let partial = Partial { epoch, transaction, object: actor.object, pieces };
                self.bench.arrive(DeviceId(number_of(device)), partial);
            }
            [name, verb @ ("changes" | "gathers" | "contributes"), ..] => {
                let column = match verb {
                    "changes" => changes(after('=').map_or(1, number_of)),
                    "gathers" => gathers(if words.contains(&"old") { Base::Old } else { Base::Zeros }),
                    _ => contributes(),
                };
                let actor = self.known(name);
                self.bench.say(actor.id.host, execute(actor, column));
            }
            [host, verb, name] if host.len() == 1 => {
                let host = host_of(host);
                let actor = self.known(name);
                self.bench.say(
                    host,
                    match verb {
                        "commits" => actor.decide(Outcome::Commit),
                        "aborts" => actor.decide(Outcome::Abort),
                        "interrupts" => actor.decide(Outcome::Interrupted),
                        "asks" => actor.resolve(),
                        "forgets" => Command::Forget { transaction: actor.id },
                        _ => panic!("not a call: {text}"),
                    },
                );
            }
            [name, "ends"] => {
                let id = self.known(name).id;
                self.bench.say_with(id.host, vec![id.sequence], Command::Heartbeat);
            }
            [name, "retracts"] => {
                let actor = self.known(name);
                self.bench.say(actor.id.host, actor.retract());
            }
            [name, verb, blocks, ..] => {
                let (actor, range) = (self.known(name), range_of(blocks));
                let fill = after('=').map_or(1, number_of);
                let commands = match verb {
                    "read" => vec![actor.read(range)],
                    "pre" => vec![actor.prewrite(range)],
                    "update" => vec![actor.read_and_prewrite(range)],
                    "write" => vec![actor.write(range, fill)],
                    "arrive" => vec![actor.write_as(WriteMode::Immediate, range, fill)],
                    "prepare" => vec![actor.prewrite(range), actor.write(range, fill)],
                    "write-alone" => vec![sent_to(actor.write(range, fill), &[0])],
                    _ => panic!("not a call: {text}"),
                };
                commands.into_iter().for_each(|command| self.bench.say(actor.id.host, command));
            }
            _ => panic!("not a call: {text}"),
        }
        None
    }

    /// The transaction with this name, which may have a stamp.
    fn known(&mut self, name: &str) -> Actor {
        let (name, micros) = name.split_once('@').map_or((name, None), |(name, micros)| (name, Some(micros)));
        if let Some(micros) = micros {
            let (host, sequence) = (host_of(&name[..1]), number_of(&name[1..]));
            let actor = Actor::new(host, sequence, self.bench.stamp(host, number_of(micros)));
            self.actors.insert(name.into(), actor.on(self.object.0, self.object.1));
        }
        self.actors[name]
    }

    /// The answers so far.
    pub fn answers(&mut self) -> Vec<String> {
        let sent = self.bench.partials.drain(..).map(|(to, sent)| {
            let ((block, fill), id) = (content_of(&sent), sent.transaction);
            format!("sends {fill} at {block} of {}{} to {}", host_shown(id.host), id.sequence, to.0)
        });
        let mut found: Vec<String> = sent.collect();
        for (host, answers) in std::mem::take(&mut self.bench.heard) {
            let mut seen = BTreeSet::new();
            let shown = answers.into_iter().map(|answer| self.shown(host, &answer.reply));
            found.extend(shown.filter(|line| !line.is_empty() && seen.insert(line.clone())));
        }
        found
    }

    fn shown(&self, to: Generation, reply: &Reply) -> String {
        let name = |id: &TransactionId| {
            let to = if id.host == to { String::new() } else { format!("{}: ", host_shown(to)) };
            format!("{to}{}{}", host_shown(id.host), id.sequence)
        };
        let at_last = |waited: &bool| if *waited { " at last" } else { "" };
        match reply {
            Reply::Accepted { transaction, waited } => format!("{} accepted{}", name(transaction), at_last(waited)),
            Reply::Written { transaction, waited } => format!("{} written{}", name(transaction), at_last(waited)),
            Reply::Data { transaction, waited, .. } => {
                let fills = fills(reply).iter().map(|fill| format!(" {fill}")).collect::<String>();
                format!("{} has{fills}{}", name(transaction), at_last(waited))
            }
            Reply::Refused { transaction, step, refusal: Refusal::TooLate { seen } } => {
                let of = self.actors.iter().find(|(_, actor)| actor.stamp == *seen);
                let of = of.map_or(String::new(), |(name, _)| format!(" for {name}"));
                format!("{}: {step:?} TooLate{of}", name(transaction))
            }
            Reply::Refused { transaction, step, refusal } => {
                format!("{}: {step:?} {}", name(transaction), first_word(refusal))
            }
            Reply::Failed { transaction, step, failure } => format!("{}: {step:?} {failure:?}", name(transaction)),
            Reply::Executing { transaction, progress: Progress::Waiting } => format!("{} waits", name(transaction)),
            Reply::Executing { transaction, progress: Progress::Gathering { missing } } => {
                let missing = missing.iter().map(|device| format!(" {}", device.0)).collect::<String>();
                format!("{} lacks{missing}", name(transaction))
            }
            Reply::Blocked { transaction } => format!("{} blocks", name(transaction)),
            Reply::Decided { transaction, outcome } => format!("{} is over: {outcome:?}", name(transaction)),
            Reply::Vote { transaction, vote } => format!("{}: {}", name(transaction), first_word(vote)),
            Reply::Forgotten { transaction } => format!("{} forgotten", name(transaction)),
            Reply::Rejected { rejection } => format!("{}: {rejection:?}", host_shown(to)),
            Reply::Heartbeat { orphans, suspects, .. } => {
                let orphans = orphans.iter().map(|orphan| orphan.transaction);
                let all = orphans.chain(suspects.iter().map(|suspect| suspect.transaction));
                let all = all.map(|id| format!(" {}{}", host_shown(id.host), id.sequence)).collect::<String>();
                if all.is_empty() { all } else { format!("{} hears of{all}", host_shown(to)) }
            }
            other => panic!("not shown in stories: {other:?}"),
        }
    }
}

/// A write with these participants.
pub fn sent_to(mut write: Command, devices: &[u16]) -> Command {
    let Command::Write { participants, .. } = &mut write else { panic!("it is no write") };
    *participants = devices.iter().copied().map(DeviceId).collect();
    write
}

fn host_of(text: &str) -> Generation {
    Generation(u32::from(text.as_bytes()[0] - b'a') + 1)
}

fn host_shown(host: Generation) -> char {
    char::from(b'a' + host.0 as u8 - 1)
}

fn range_of(text: &str) -> BlockRange {
    let (start, count) = text.split_once('+').unwrap_or((text, "1"));
    BlockRange::new(number_of(start), number_of(count))
}
