//! `cargo xtask atomics`: compares durable compare-and-swaps of one device with those of an etcd server.

use crate::compare::process::{await_listener, free_port, printed_json};
use crate::compare::progress::Progress;
use crate::compare::{RoundArguments, measure_in};
use crate::prelude::*;
use std::net::Ipv4Addr;

const PACKAGES: [Package; 3] = [
    ("etcd-server", "/usr/bin/etcd"),
    ("protobuf-compiler", "/usr/bin/protoc"),
    ("libprotobuf-dev", "/usr/include/google/protobuf/descriptor.proto"),
];

/// Compare atomic operations with etcd
///
/// Everything lies on one file system. Each round measures, in an order that changes from round to round: compare-and-swaps and
/// fetch-and-adds on attributes of one device (`braid bench atomics`), and transactions of an etcd server that compare a key's
/// value and put another (`peers/etcd`, built separately), once with one connection per client and once with one connection for
/// all; the faster of the two counts. All keys and attributes are distinct; every operation succeeds, and is durable when it is
/// answered. Locks of ranges (`braid bench ranges datalock`) are compared with etcd's transactions, too: so etcd locks. Then, with Braid alone and 8 clients: lock, write 256 bytes and unlock, in two round trips; and insertions into a
/// directory of 1,000 names and of a million.
///
/// Prints the medians of ten runs of 5 s, the median of the ratios of each round, and the 95 % confidence interval of that median.
///
/// Examples:
///   cargo xtask atomics                   ten rounds in ./braid-atomics; about eight minutes
///   cargo xtask atomics --quick           a quick check that it works; its results mean little
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// A folder on the disk to be measured; created if it does not exist
    #[arg(long, default_value = "./braid-atomics")]
    dir: PathBuf,
    #[command(flatten)]
    rounds: RoundArguments,
    /// Clients, each with one request in flight
    #[arg(long, default_value_t = 32)]
    clients: u32,
}

/// How long a server may take to listen, and a run to end after its time.
const START_WAIT: Duration = Duration::from_secs(30);
const END_WAIT: Duration = Duration::from_secs(60);
/// Free space required.
const ROOM: u64 = 4 << 30;
/// Clients for locks and directories.
const FEW_CLIENTS: &str = "8";
const FEW_NAMES: &str = "1000";
const MANY_NAMES: &str = "1000000";

/// The results of one round: operations per second, and the 99th percentile of the latency in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    swap: Figures,
    add: Figures,
    etcd: Figures,
    lock: Figures,
    /// Locks of ranges that a lock server grants, and unlocks that need no message.
    range: Figures,
    /// Insertions into a small directory.
    few: Figures,
    many: Figures,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    per_second: f64,
    p99: f64,
}

/// Measures, and prints the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    packages::install(&PACKAGES, "the comparison needs")?;
    let braid = arguments.rounds.program()?;
    let peer = build_peer()?;
    measure_in(&arguments.dir, ROOM, arguments.rounds.json.as_deref(), |folder, interrupt| {
        let mut rounds = Vec::new();
        let outcome = measure(arguments, folder, (&braid, &peer), interrupt, &mut rounds);
        (outcome, (!rounds.is_empty()).then(|| (text_of(&rounds), json_of(&rounds))))
    })
}

fn measure(
    arguments: &Arguments,
    folder: &Path,
    (braid, peer): (&Path, &Path),
    interrupt: &Interrupt,
    rounds: &mut Vec<Round>,
) -> Result<()> {
    let seconds = arguments.rounds.seconds(5).to_string();
    let clients = arguments.clients.to_string();
    let count = arguments.rounds.rounds(10, 2);
    let progress = Progress::new()?;
    let (_server, endpoint) = start_etcd(folder, interrupt)?;
    let told = |command: &mut Command| -> Result<Value> {
        printed_json(command, folder, Duration::from_secs(seconds.parse::<u64>()? * 4) + END_WAIT, interrupt)
    };
    let bench = |kinds: &[&str], clients: &str, names: &str| -> Result<Vec<Figures>> {
        let mut bench = Command::new(braid);
        let what = if kinds == ["datalock"] { &["ranges"][..] } else { &["atomics", "--fill", names] };
        bench.arg("bench").args(what).args(["--json", "--seconds", &seconds, "--clients", clients]);
        bench.args(kinds).arg("--scratch").arg(folder).env_remove("BRAID_ARRAY");
        let told = told(&mut bench)?;
        (0..kinds.len()).map(|number| of_braid(&told["runs"][number])).collect()
    };
    for number in 0..count {
        progress.say(&format!("round {} of {count}", number + 1));
        let mut round = Round::default();
        for step in 0..2 {
            if (step + number) % 2 == 0 {
                let figures = bench(&["swap", "add"], &clients, "0")?;
                (round.swap, round.add) = (figures[0], figures[1]);
                round.range = bench(&["datalock"], &clients, "")?[0];
            } else {
                for connections in [&clients, "1"] {
                    let mut load = Command::new(peer);
                    load.args(["--endpoint", &endpoint, "--seconds", &seconds, "--clients", &clients]);
                    load.args(["--connections", connections]);
                    let told = told(&mut load)?;
                    let per_second = told["per_second"].as_f64().context("the load reported no rate")?;
                    let p99 = told["p99_milliseconds"].as_f64().context("the load reported no latency")?;
                    if per_second > round.etcd.per_second {
                        round.etcd = Figures { per_second, p99 };
                    }
                }
            }
        }
        for step in 0..2 {
            if (step + number) % 2 == 0 {
                let figures = bench(&["lock", "insert"], FEW_CLIENTS, FEW_NAMES)?;
                (round.lock, round.few) = (figures[0], figures[1]);
            } else {
                round.many = bench(&["insert"], FEW_CLIENTS, MANY_NAMES)?[0];
            }
        }
        rounds.push(round);
    }
    Ok(())
}

fn of_braid(run: &Value) -> Result<Figures> {
    let per_second = run["per_second"].as_f64().context("the bench reported no rate")?;
    let p99 = run["latency_p99_us"].as_f64().context("the bench reported no latency")? / 1000.0;
    Ok(Figures { per_second, p99 })
}

/// Builds the load generator for etcd, separately from the workspace, in its own folder.
fn build_peer() -> Result<PathBuf> {
    let manifest = crate::root().join("peers/etcd/Cargo.toml");
    let target = crate::target_folder().join("peers");
    let mut build = crate::cargo(&["build", "--release", "--locked", "--manifest-path"]);
    build.arg(manifest).arg("--target-dir").arg(&target);
    crate::run(build)?;
    Ok(target.join("release/etcd-swaps"))
}

/// Starts a server with an empty store in `folder`. Returns its address.
fn start_etcd(folder: &Path, interrupt: &Interrupt) -> Result<(Process, String)> {
    let port = free_port()?;
    let [endpoint, peer] = [port, free_port()?].map(|port| format!("http://{}:{port}", Ipv4Addr::LOCALHOST));
    let mut command = Command::new(PACKAGES[0].1);
    command.arg("--data-dir").arg(folder.join("etcd"));
    command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    let mut server = Process::start(&mut command, &folder.join("etcd.log"))?;
    await_listener(&mut server, port, START_WAIT, interrupt)?;
    Ok((server, endpoint))
}

fn text_of(rounds: &[Round]) -> String {
    let subject = |what: &str, of: fn(&Round) -> Figures, to: Option<fn(&Round) -> Figures>, wanted: &str| {
        let middle =
            |value: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(value).collect::<Vec<f64>>()).unwrap_or_default();
        let pair = |to: fn(&Round) -> Figures| move |round: &Round| (of(round).per_second, to(round).per_second);
        let compared = to.map(|to| Ratio::of(rounds.iter().map(pair(to))).to_string());
        [
            what.to_string(),
            format!("{:.0}", middle(&|round| of(round).per_second)),
            format!("{:.2}", middle(&|round| of(round).p99)),
            compared.unwrap_or_default(),
            wanted.to_string(),
        ]
    };
    let etcd = |round: &Round| round.etcd;
    let rows = [
        subject("compare-and-swap", |round| round.swap, Some(etcd), "15,000/s, 4 times etcd"),
        subject("fetch-and-add", |round| round.add, Some(etcd), "likewise"),
        subject("lock a range", |round| round.range, Some(etcd), "20,000/s; etcd locks by compare and put"),
        subject("etcd, compare and put", etcd, None, ""),
        subject("lock, write and unlock", |round| round.lock, None, "two round trips"),
        subject("insert into 1,000 names", |round| round.few, None, "8,000/s"),
        subject("insert into 1,000,000", |round| round.many, Some(|round| round.few), "0.8 of that"),
    ];
    titled(["", "per second", "p99 ms", "ratio [95 %]", "wanted"], rows)
}

fn json_of(rounds: &[Round]) -> Value {
    let figures = |figures: Figures| json!({ "per_second": figures.per_second, "p99_milliseconds": figures.p99 });
    let of_round = |round: &Round| {
        json!({"swap": figures(round.swap), "add": figures(round.add), "etcd": figures(round.etcd),
            "lock": figures(round.lock), "range": figures(round.range), "insert_few": figures(round.few), "insert_many": figures(round.many)})
    };
    json!({ "schema": 2, "rounds": rounds.iter().map(of_round).collect::<Vec<_>>() })
}
