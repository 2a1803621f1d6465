//! Stories of the monitor: a table of calls, each with the changes of the membership that follow from it, and of the devices that the
//! monitor calls unavailable.
//!
//! `4600ms 0134 h7` lets that time pass, in which these devices and host 7 ask for leases; `hear 2` is a single request. A lease lasts for
//! 4400 ms, and its end is noticed 200 ms later at most. `e2: 2 out` is the second epoch, as of which device 2 is out.

use crate::bench::*;
pub use braid_stories::{Told, stories};
use braid_stories::{number_of, span_of, yes_or_no};

pub struct Story {
    pub bench: Bench,
    members: Membership,
    lacking: Vec<u16>,
    /// A copy of the monitor's disk.
    copy: Vec<u8>,
    /// The last ticket that the story has chosen for an operator's request.
    tickets: u64,
}

/// A story of five devices with one volume that can serve without any one of them.
pub fn five(parts: &[(&str, &str)]) -> Story {
    tell(Bench::new(), parts)
}

pub fn tell(bench: Bench, parts: &[(&str, &str)]) -> Story {
    let (members, lacking) = (bench.membership().clone(), bench.unavailable());
    Story { bench, members, lacking, copy: Vec::new(), tickets: 1_000 }.told(parts)
}

impl Told for Story {
    fn call(&mut self, text: &str) -> Vec<String> {
        let answer = self.execute(text).into_iter();
        answer.chain(self.changes()).collect()
    }
}

impl Story {
    /// Executes a call. Returns the answer to a question.
    fn execute(&mut self, text: &str) -> Option<String> {
        let words: Vec<&str> = text.split(' ').collect();
        let bench = &mut self.bench;
        let yes_or_no = |value| yes_or_no(value).pop();
        match words[..] {
            ["hear", ref nodes @ ..] => nodes_of(nodes).into_iter().for_each(|node| bench.renew(node)),
            ["array", devices] => {
                self.bench = Bench::of(number_of(devices));
                (self.members, self.lacking) = (self.bench.membership().clone(), self.bench.unavailable());
            }
            ["adopt", id, scheme, devices] => {
                let devices: Vec<u16> = devices.chars().map(|digit| number_of(&digit.to_string())).collect();
                let volume = volume(number_of(id), scheme.parse().expect("a scheme"), &devices);
                return bench.request(ControlRequest::AdoptVolume { volume }).err().map(|error| plain(&error));
            }
            ["put", device, disk] => {
                bench.disks.insert(DeviceId(number_of(device)), DiskId(number_of(disk)));
                bench.epochs.remove(&nodes_of(&[device])[0]);
            }
            ["slot", device] => {
                let slot = bench.monitor.slots().find(|slot| slot.device == DeviceId(number_of(device)));
                let slot = slot.expect("it is there");
                let disk = |what, disk: Option<DiskId>| disk.map(|disk| format!("{what} {}", disk.0));
                let present = disk("disk", slot.disk.filter(|_| slot.awaited_disk.is_none()));
                let all = [present, disk("then", slot.next_disk), disk("awaits", slot.awaited_disk)];
                let kept_out = slot.kept_out.then(|| "kept out".to_string());
                let refuses = slot.join_refused.map(|why| format!("refuses {}", plain(&why)));
                return Some(all.into_iter().flatten().chain(kept_out).chain(refuses).collect::<Vec<_>>().join(", "));
            }
            ["member", device] => return yes_or_no(bench.membership().member(DeviceId(number_of(device))).is_some()),
            ["asks", node] => {
                return Some(answer_shown(&bench.answer_to(nodes_of(&[node])[0])));
            }
            ["hears", node] => return bench.hear(nodes_of(&[node])[0]).map(|answer| answer_shown(&answer)),
            // The epochs of the memberships that these nodes were told without having asked.
            ["changes", "told", "to", ref nodes @ ..] => {
                let told = nodes_of(nodes).into_iter().map(|node| {
                    let mut answers = std::iter::from_fn(|| bench.hear(node));
                    let changed = answers.find(|answer| answer.reply == MonitorReply::Changed).expect("it is told");
                    assert_eq!(changed.membership.as_ref(), Some(bench.membership()), "{node}");
                    format!("e{}", bench.epoch())
                });
                return Some(told.collect::<Vec<_>>().join(" "));
            }
            // By its number, with ticket 2.
            [host, "fences", "below", below, ref others @ ..] => {
                let except = others.iter().skip(1).map(|host| Generation(number_of(host))).collect();
                let below = Generation(number_of(below));
                bench.say(nodes_of(&[host])[0], MonitorCommand::Fence { ticket: 2, below, except, also: Vec::new() });
            }
            ["heard", node] => return yes_or_no(bench.hear(nodes_of(&[node])[0]).is_some()),
            ["answers", "to", node] => {
                let answers = bench.administered(nodes_of(&[node])[0]).into_iter();
                return Some(
                    answers.map(|(ticket, answer)| format!("{ticket}: {answer}")).collect::<Vec<_>>().join(", "),
                );
            }
            ["memberships", "told", "to", node] => {
                let node = nodes_of(&[node])[0];
                let told = std::iter::from_fn(|| bench.hear(node)).filter(|answer| answer.membership.is_some());
                return Some(told.count().to_string());
            }
            ["replace" | "readmit" | "fail" | "add" | "remove" | "spare" | "unspare" | "throttle", ..] => {
                return Some(self.administers(&words));
            }
            ["late", ref nodes @ .., epoch] => {
                nodes_of(nodes).into_iter().for_each(|node| bench.renew_in(epoch_of(epoch), node));
            }
            ["copy"] => self.copy = bench.disk().to_vec(),
            ["is", "copy"] => return yes_or_no(bench.disk() == self.copy),
            ["restart", "from", "copy"] => {
                bench.restart_with(config(5), self.copy.clone());
                bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &[0, 1, 2, 3, 4]));
            }
            ["service"] => return Some(service_shown(&bench.monitor)),
            ["ahead"] => {
                let ahead =
                    bench.monitor.leases().filter_map(|lease| Some(format!("{}: e{}", lease.device.0, lease.ahead?.0)));
                let counted = format!("{} counted", bench.monitor.counters().ahead);
                return Some(ahead.chain([counted]).collect::<Vec<_>>().join(", "));
            }
            // The devices that were given a lease, each of which was given one.
            ["got", "leases", devices] => {
                let got = devices.chars().filter(|digit| {
                    let answers = std::iter::from_fn(|| bench.hear(device(number_of(&digit.to_string()))));
                    let leases = answers.filter(|answer| matches!(answer.reply, MonitorReply::Lease { .. })).count();
                    assert!(leases < 2, "device {digit} was given {leases} leases");
                    leases == 1
                });
                let got = got.map(String::from).collect::<Vec<_>>().join(" ");
                return Some(got).filter(|got| !got.is_empty());
            }
            // A device whose disk knows no epoch, whatever it is told.
            ["empty", device, "for", span, ref nodes @ ..] => {
                let (end, alive) = (bench.now.time.after(span_of(span)), nodes_of(nodes));
                while bench.now.time < end {
                    bench.renew_in(Epoch(0), nodes_of(&[device])[0]);
                    bench.pass_with(SECOND / 4, &alive);
                }
            }
            ["suspended", "for", span] => bench.now.time = bench.now.time.after(span_of(span)),
            ["silent", ref devices @ ..] => bench.silent = devices_of(devices),
            ["unable", ref devices @ ..] => bench.unable = devices_of(devices),
            ["failing", ref devices @ ..] => bench.failing = devices_of(devices),
            ["stall"] => bench.stalled = true,
            ["resume"] => bench.resume_disk(),
            ["restart"] => {
                bench.restart(config(5));
                bench.adopt(volume(1, RaidLevel::Raid5 { data: 4 }, &[0, 1, 2, 3, 4]));
            }
            ["write"] => assert!(bench.run_command(), "there is a write"),
            ["fence", ticket, ref hosts @ ..] => {
                bench.fence(number_of(ticket), &hosts.iter().map(|host| number_of(host)).collect::<Vec<_>>());
            }
            ["fenced", ticket] => return yes_or_no(bench.is_fenced(number_of(ticket))),
            ["refuses", host] => return yes_or_no(bench.membership().fence.refuses(Generation(number_of(host)))),
            ["count", "fences"] => return Some(bench.monitor.counters().fences.to_string()),
            ["told", node] => {
                let told = bench.answer_to(nodes_of(&[node])[0]).unavailable;
                let told = told.iter().map(|device| device.0.to_string()).collect::<Vec<_>>().join(" ");
                return Some(if told.is_empty() { "none".into() } else { told });
            }
            ["undecided", device, ref hosts @ ..] => {
                let hosts = hosts.iter().flat_map(|hosts| {
                    let (first, last) = hosts.split_once('-').unwrap_or((*hosts, *hosts));
                    (number_of(first)..=number_of::<u32>(last)).map(Generation)
                });
                bench.undecided.insert(nodes_of(&[device])[0], hosts.collect());
            }
            ["leased", node] => return yes_or_no(nodes_of(&[node]).into_iter().all(|node| bench.gets_lease(node))),
            ["has", device, epoch] => drop(bench.epochs.insert(nodes_of(&[device])[0], epoch_of(epoch))),
            [node, "takes", "from", owner, since, ..] => {
                let owner = owner.strip_prefix('h').map(|host| Generation(number_of(host)));
                let from = Ownership { since: epoch_of(since), owner };
                self.asks_owner(node, OwnershipRequest::TakeOver { from }, &words);
            }
            [node, "releases", since, ..] => {
                self.asks_owner(node, OwnershipRequest::Release { since: epoch_of(since) }, &words);
            }
            ["owner", ..] => self.asks_owner("h999", OwnershipRequest::Inquire, &words),
            [node, "resynchronised", device, since] => {
                let (device, since) = (DeviceId(number_of(device)), epoch_of(since));
                bench.say(nodes_of(&[node])[0], MonitorCommand::Resynchronised { device, since });
            }
            [span, ref nodes @ ..] => match nodes_of(nodes) {
                alive if alive.is_empty() => bench.pass(span_of(span)),
                alive => bench.pass_with(span_of(span), &alive),
            },
            _ => panic!("not a call: {text}"),
        }
        None
    }

    /// A host's request about file system 3, if nothing else is said. It is answered among the changes.
    fn asks_owner(&mut self, node: &str, request: OwnershipRequest, words: &[&str]) {
        let after = |word| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
        let (ticket, file_system) = (after("as").map_or(1, number_of), after("of").map_or(3, number_of));
        let file_system = FileSystemId(file_system);
        self.bench.say(nodes_of(&[node])[0], MonitorCommand::Ownership { ticket, file_system, request });
    }

    /// An operator's request, at host 7 if nothing else is said. Returns the answer.
    fn administers(&mut self, words: &[&str]) -> String {
        let after = |word| words.iter().position(|other| *other == word).map(|at| words[at + 1]);
        let device = DeviceId(number_of(words[1]));
        let disk = DiskId(words.get(2).and_then(|disk| disk.parse().ok()).unwrap_or_default());
        let blocks = words.get(3).and_then(|blocks| blocks.parse().ok()).unwrap_or(1_000);
        let request = match words[0] {
            "replace" => Administration::Replace { device, disk, blocks, lose: words.contains(&"lose") },
            "readmit" => Administration::Readmit { device },
            "fail" => Administration::Fail { device },
            "add" => Administration::AddDevice { device, disk },
            "remove" => Administration::RemoveDevice { device },
            "unspare" => Administration::RemoveSpare { disk: DiskId(device.0.into()) },
            "throttle" => {
                let (bytes_per_second, share) = (number_of(words[1]), number_of(words[2]));
                Administration::RecoveryThrottle(RecoveryThrottle { bytes_per_second, share, paused: true })
            }
            _ => Administration::AddSpare { disk: DiskId(device.0.into()), blocks: disk.0 },
        };
        self.tickets += 1;
        let ticket = after("as").map_or(self.tickets, number_of);
        let host = nodes_of(&[after("by").unwrap_or("h7")])[0];
        while self.bench.hear(host).is_some() {}
        self.bench.say(host, MonitorCommand::Administer { ticket, request });
        let answer = self.bench.administered(host).into_iter().find(|(of, _)| *of == ticket);
        answer.map_or("no answer".into(), |(_, answer)| answer)
    }

    /// What has changed since.
    fn changes(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let members = self.bench.membership().clone();
        if members.epoch != self.members.epoch {
            let changed = members.members.iter().filter(|member| !self.members.members.contains(member));
            let shown = changed.map(|member| {
                let state = match member.member_state {
                    MemberState::In => "in".into(),
                    MemberState::Out => "out".into(),
                    MemberState::Returning { recovery_coordinator: None } => "returning".into(),
                    MemberState::Returning { recovery_coordinator: Some(host) } => format!("returning h{}", host.0),
                };
                let since = (member.since != members.epoch).then(|| format!(" since e{}", member.since.0));
                format!("{} {state}{}", member.device.0, since.unwrap_or_default())
            });
            let shown = shown.collect::<Vec<_>>().join(" ");
            found.push(format!("e{}{}{shown}", members.epoch.0, if shown.is_empty() { "" } else { ": " }));
            self.members = members;
        }
        let lacking = self.bench.unavailable();
        if lacking != self.lacking {
            let shown = lacking.iter().map(|device| format!(" {device}")).collect::<String>();
            found.push(format!("lacking{}", if lacking.is_empty() { " none" } else { &shown }));
            self.lacking = lacking;
        }
        found.extend(self.bench.take_ownerships().into_iter().map(|(host, ticket, result)| {
            let shown = |ownership: Ownership| {
                let owner = ownership.owner.map_or("none".into(), |owner| format!("h{}", owner.0));
                format!("{owner} e{}", ownership.since.0)
            };
            let result = match result {
                Ok(ownership) => shown(ownership),
                Err(OwnershipRefused::Differs(present)) => format!("differs {}", shown(present)),
                Err(other) => plain(&other),
            };
            if host == Generation(999) { result } else { format!("h{}/{ticket}: {result}", host.0) }
        }));
        found
    }
}

impl Bench {
    /// The answers to operators' requests at this host.
    fn administered(&mut self, host: NodeId) -> Vec<(u64, String)> {
        let answers = std::iter::from_fn(|| self.hear(host));
        let told = answers.filter_map(|answer| match answer.reply {
            MonitorReply::Administered { ticket, result } => {
                Some((ticket, result.map_or_else(|error| plain(&error), |()| "done".into())))
            }
            _ => None,
        });
        told.collect()
    }
}

/// Whether the monitor serves, or in short why it can't. Such a monitor waits for nothing.
fn service_shown(monitor: &Monitor) -> String {
    match monitor.service() {
        MonitorService::Off | MonitorService::Reading => "not yet".into(),
        MonitorService::Serving => "serving".into(),
        MonitorService::Unusable(error) => {
            assert_eq!(monitor.deadline(), None);
            error.to_string().split(':').next().expect("a text").into()
        }
    }
}

fn answer_shown(answer: &MonitorAnswer) -> String {
    let told = answer.membership.as_ref().map(|told| format!(", and e{}", told.epoch.0));
    let is_lease = matches!(answer.reply, MonitorReply::Lease { .. });
    let reply = if is_lease { "Lease".into() } else { plain(&answer.reply) };
    reply + &told.unwrap_or_default()
}

/// A value without its punctuation and the names of its types.
fn plain(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}").replace(|letter: char| !letter.is_alphanumeric(), " ");
    let words = text.split_whitespace().filter(|word| !matches!(*word, "DeviceId" | "DiskId" | "VolumeId" | "Epoch"));
    words.collect::<Vec<_>>().join(" ")
}

fn epoch_of(text: &str) -> Epoch {
    Epoch(number_of(text.strip_prefix('e').expect("an epoch")))
}

fn devices_of(words: &[&str]) -> Vec<DeviceId> {
    words.iter().map(|number| DeviceId(number_of(number))).collect()
}

/// Devices by their digits, hosts as `h7`, and lock servers as `s0`.
fn nodes_of(words: &[&str]) -> Vec<NodeId> {
    let nodes = words.iter().flat_map(|word| match word.split_at(1) {
        ("h", number) => vec![host(number_of(number))],
        ("s", number) => vec![lock_server(number_of(number))],
        _ => word.chars().map(|digit| device(number_of(&digit.to_string()))).collect(),
    });
    nodes.collect()
}
