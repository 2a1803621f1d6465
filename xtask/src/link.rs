//! `cargo xtask link`: what small writes cost on the network link of a host. The host and the devices are in network namespaces of their
//! own, so that the kernel counts and limits what passes between them.

use crate::compare::array::DEVICES;
use crate::compare::measure_in;
use crate::compare::process::output_of;
use crate::prelude::*;
use std::collections::VecDeque;

const PACKAGES: [Package; 2] = [("iproute2", "/sbin/tc"), ("nftables", "/usr/sbin/nft")];
/// The addresses of host and devices.
const NEAR: &str = "10.78.0.1";
const FAR: &str = "10.78.0.2";
const SITES: [&str; 2] = ["originator", "at-parity"];
const DEVICE_BYTES: &str = "4GiB";
/// How long a daemon may take to start.
const START_WAIT: Duration = Duration::from_secs(60);

/// Measure the cost of small writes on the link of a host
///
/// The devices and the monitor run in one network namespace, a host in another, with a link between them (needs root). Measures random
/// writes of 4 KiB, with the parity computed by the host (originator) and by the devices (at-parity):
///
///   bytes    what passes over the link for each write, counted by nftables: the difference between a long and a short run
///   rate     interleaved pairs of both, on a link that is limited to --rate
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// A folder on the disk to be used; created if it does not exist
    #[arg(long, default_value = "./braid-link")]
    dir: PathBuf,
    /// The rate of the link, as `tc` reads it
    #[arg(long, default_value = "200mbit")]
    rate: String,
    /// Pairs of runs on the limited link; from 6 on there are confidence intervals
    #[arg(long, default_value_t = 6)]
    pairs: u32,
    /// Duration of each run in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Use this program instead of a release build of this tree
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

/// Measures, and prints the results.
pub fn measure_link(arguments: &Arguments) -> Result<()> {
    packages::install(&PACKAGES, "the measurement needs")?;
    let program = crate::release_build(arguments.braid.as_deref())?;
    measure_in(&arguments.dir, 4 << 30, None, |folder, interrupt| {
        (measure(&program, folder, arguments, interrupt), None)
    })
}

fn measure(program: &Path, folder: &Path, arguments: &Arguments, interrupt: &Interrupt) -> Result<()> {
    let network = Network::new()?;
    let array = folder.join("array");
    let braid = |namespace: &str, words: &[&str]| {
        let mut command = network.command(namespace, program);
        command.args(words).arg("--array").arg(&array);
        command
    };
    create(program, &array, folder, interrupt)?;
    let far = |port: u64| format!("{FAR}:{port}");
    // The last one started is in front, and so is ended first.
    let mut daemons = VecDeque::new();
    let mut start = |command: &mut Command, name: &str| -> Result<()> {
        let mut daemon = Process::start(command, &folder.join(name))?;
        await_word(&mut daemon, &["serves", "\"ready\""], interrupt)?;
        daemons.push_front(daemon);
        Ok(())
    };
    start(&mut braid(&network.far, &["monitord", "--listen", &far(7200)]), "monitord.log")?;
    for device in 0..DEVICES {
        let file = array.join(format!("device-{device}.braid")).display().to_string();
        let words = ["device", "serve", &file, "--listen", &far(7000 + device)];
        start(&mut braid(&network.far, &words), &format!("device-{device}.log"))?;
    }
    start(&mut braid(&network.near, &["up", "--yes", "--port", "0", "--json"]), "host.log")?;

    let bench = |seconds: u32| {
        let words = ["bench", "--through", "direct", "--reads", "0", "--size", "512MiB"];
        let mut command = braid(&network.near, &words);
        command.args(["--seconds", &seconds.to_string()]);
        command
    };
    for site in SITES {
        let mut runs = Vec::new();
        for seconds in [1, 1 + 3 * arguments.seconds] {
            network.count_anew()?;
            let mut command = bench(seconds);
            command.args(["--parity-site", site, "--json"]);
            let report: Value = serde_json::from_str(&output_of(&mut command)?).context("the bench prints JSON")?;
            let rate = report["series"][0]["runs"][0]["figures"]["operations_per_second"].as_f64();
            let operations = rate.context("the bench reports operations")? * f64::from(seconds);
            runs.push((operations, network.counted()?));
        }
        let [(few, (out_few, in_few)), (many, (out_many, in_many))] = runs[..] else { unreachable!("two runs") };
        let each = |many: u64, few: u64, writes: f64| (many - few) as f64 / writes / 1024.0;
        let (out, back) = (each(out_many, out_few, many - few), each(in_many, in_few, many - few));
        println!("{site}: {out:.2} KiB sent by the host and {back:.2} KiB received, for each write of 4 KiB");
    }
    println!("\non a link of {}:", arguments.rate);
    network.limit(&arguments.rate)?;
    let mut pairs = bench(arguments.seconds);
    pairs.args(["--parity-site", SITES[0], "--versus", &format!("parity-site={}", SITES[1])]);
    pairs.args(["--pairs", &arguments.pairs.to_string()]);
    run(pairs)
}

/// Creates an array whose devices have addresses at the far end.
fn create(program: &Path, array: &Path, folder: &Path, interrupt: &Interrupt) -> Result<()> {
    let mut up = Command::new(program);
    up.args(["up", "--yes", "--port", "0", "--json", "--size", DEVICE_BYTES, "--volume", "small:64MiB", "--array"])
        .arg(array);
    let mut first = Process::start(&mut up, &folder.join("create.log"))?;
    await_word(&mut first, &["\"ready\""], interrupt)?;
    drop(first);
    let path = array.join("array.json");
    let mut description: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    for device in 0..DEVICES as usize {
        description["devices"][device]["address"] = format!("{FAR}:{}", 7000 + device).into();
    }
    Ok(std::fs::write(&path, description.to_string())?)
}

/// Waits until a process has printed one of these.
fn await_word(process: &mut Process, words: &[&str], interrupt: &Interrupt) -> Result<()> {
    let is_there = |process: &Process| words.iter().any(|word| process.said().contains(word)).then_some(());
    process.until(START_WAIT, interrupt, "it did not start", |process| Ok(is_there(process)))
}

/// Two network namespaces with a link between them, removed when dropped.
struct Network {
    near: String,
    far: String,
}

impl Network {
    fn new() -> Result<Network> {
        let name = |end: &str| format!("braid-{}-{end}", std::process::id());
        let network = Network { near: name("near"), far: name("far") };
        let ends = [(&network.near, NEAR), (&network.far, FAR)];
        for (end, _) in ends {
            ip(&["netns", "add", end]).context("network namespaces need root")?;
            ip(&["-n", end, "link", "set", "lo", "up"])?;
        }
        let pair = ["link", "add", "veth0", "netns", &network.near, "type", "veth", "peer", "name", "veth0", "netns"];
        ip(&[&pair[..], &[&network.far]].concat())?;
        for (end, address) in ends {
            ip(&["-n", end, "address", "add", &format!("{address}/24"), "dev", "veth0"])?;
            ip(&["-n", end, "link", "set", "veth0", "up"])?;
        }
        Ok(network)
    }

    /// A command that runs in a namespace.
    fn command(&self, namespace: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program);
        command
    }

    /// Counts what the host sends and receives, from zero.
    fn count_anew(&self) -> Result<()> {
        let rules = "table inet braid\n\
            delete table inet braid\n\
            table inet braid {\n\
              chain sent { type filter hook output priority 0; oifname veth0 counter; }\n\
              chain received { type filter hook input priority 0; iifname veth0 counter; }\n\
            }\n";
        let mut nft = self.command(&self.near, Path::new("nft"));
        nft.arg(rules);
        output_of(&mut nft).map(|_| ())
    }

    /// The bytes that the host has sent and received.
    fn counted(&self) -> Result<(u64, u64)> {
        let mut nft = self.command(&self.near, Path::new("nft"));
        nft.args(["--json", "list", "table", "inet", "braid"]);
        let listed: Value = serde_json::from_str(&output_of(&mut nft)?).context("nft prints JSON")?;
        let of = |chain: &str| {
            let rules = listed["nftables"].as_array().into_iter().flatten().map(|entry| &entry["rule"]);
            let counter = rules.filter(|rule| rule["chain"] == chain).flat_map(|rule| rule["expr"].as_array());
            counter.flatten().find_map(|part| part["counter"]["bytes"].as_u64()).context("nft has counted")
        };
        Ok((of("sent")?, of("received")?))
    }

    /// Limits the link to a rate, in both directions.
    fn limit(&self, rate: &str) -> Result<()> {
        for end in [&self.near, &self.far] {
            let mut tc = self.command(end, Path::new("tc"));
            tc.args([
                "qdisc", "add", "dev", "veth0", "root", "tbf", "rate", rate, "burst", "256kb", "latency", "100ms",
            ]);
            output_of(&mut tc)?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for end in [&self.near, &self.far] {
            // It may not have been made.
            let _ = ip(&["netns", "del", end]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<String> {
    output_of(Command::new("ip").args(arguments))
}
