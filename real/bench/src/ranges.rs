//! `braid bench ranges`: measures locks of ranges (range-lock paper, section 4).

use crate::arguments::{BenchArray, ClientArguments, KindArguments};
use crate::atomics::{Counted, Run, of_runs, table_of};
use crate::prelude::*;
use crate::settings::name_of;
use crate::test_bed::TestBed;
use braid_base::{BlockRange, ObjectId};
use braid_client::{Array, ArrayOptions, space_object};
use braid_control::{ArrayDescription, ControlError, ControlPlane};
use braid_machine::{HostSuccess, RangesRequest};
use braid_wire::{LockExtent, LockMode};
use futures_util::future::try_join_all;

/// Measure locks of ranges, exclusive ones: granted by lock servers, by the host, within the program, and taken from another host
///
/// Hosts in this process lock and unlock ranges of a space, with one range per client at a time. The bench creates a scratch array and
/// removes it. With --array it measures your running array instead, for instance one with several lock servers
/// (`braid up --lock-servers`).
///
/// Examples:
///   braid bench ranges                              all kinds, 32 clients
///   braid bench ranges datalock --clients 1         the latency of a single lock
///   braid bench ranges childlock --seconds 10 --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    of_kinds: KindArguments<Kind>,
    /// The length of a range
    #[arg(long, value_parser = size, default_value = "4KiB")]
    length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A range that no host has: a lock server grants it
    Datalock,
    /// A range that the host keeps: granted without a message
    Kept,
    /// A part of a range that the program has locked: granted within the program
    Childlock,
    /// A range that another host keeps: the lock server calls it back
    Recall,
}

/// How long a lock is waited for; lock servers are started for the first one.
const PATIENCE: Duration = Duration::from_secs(30);
/// Locks of parts after which a client lets the others go on: none of them waits.
const PARTS_IN_A_ROW: u64 = 64;

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let BenchArray { choice, array, .. } = arguments.of_kinds.scratch.place(common, None).await?;
    let mut runs = Vec::new();
    let measure = async |test_bed: &mut TestBed| {
        test_bed.bring_up(&array, 0).await?;
        let control = test_bed.control();
        let wants = |description: &mut ArrayDescription| {
            description.locks_ranges = true;
            Ok::<(), ControlError>(())
        };
        control.update(wants).await?;
        let measure = async |kind| match kind {
            Kind::Childlock => measure_parts(control, &arguments).await,
            _ => measure_ranges(control, kind, &arguments).await,
        };
        arguments.of_kinds.measure_each(&mut runs, measure).await
    };
    let outcome = crate::on_test_bed(choice, 0, measure).await;
    let (length, ClientArguments { clients, seconds, .. }) = (arguments.length, arguments.of_kinds.load);
    let json =
        || json!({"schema": 2, "clients": clients, "length": length, "seconds": seconds, "runs": of_runs(&runs)});
    let text = || format!("{}\n{clients} clients, ranges of {length} bytes\n", table_of(&runs));
    crate::conclude(common, outcome, runs.len(), json, text)
}

/// Clients that share one lock of a range, and lock parts of it.
async fn measure_parts(control: &ControlPlane, arguments: &Arguments) -> Result<Run, Failure> {
    let (clients, length) = (u64::from(arguments.of_kinds.load.clients), arguments.length);
    let array = Array::connect(ArrayOptions::at(control.place()).name("bench")).await?;
    let whole = array.ranges("bench").lock(0..clients * length, LockMode::Exclusive).await?;
    let (whole, counted) = (&whole, Counted::after(&arguments.of_kinds.load));
    let drive = async |client: u64| {
        counted
            .repeat(async |count| {
                drop(whole.part(client * length..(client + 1) * length, LockMode::Exclusive).await?);
                if count % PARTS_IN_A_ROW == 0 {
                    tokio::task::yield_now().await;
                }
                Ok(0)
            })
            .await
    };
    let all = try_join_all((0..clients).map(drive)).await?;
    array.close().await;
    Ok(Run::of(name_of(Kind::Childlock), all, arguments.of_kinds.load.seconds))
}

async fn measure_ranges(control: &ControlPlane, kind: Kind, arguments: &Arguments) -> Result<Run, Failure> {
    let hosts = [Session::start(control, "bench").await?, Session::start(control, "bench").await?];
    let run = measure(&hosts, kind, arguments).await;
    for host in hosts {
        host.end().await;
    }
    run
}

async fn measure(hosts: &[Session; 2], kind: Kind, arguments: &Arguments) -> Result<Run, Failure> {
    // Unlike any range of another run.
    let space = space_object(&format!("bench {}", hosts[0].generation()));
    let (clients, length) = (u64::from(arguments.of_kinds.load.clients), arguments.length);
    // The lock servers serve, and both hosts are listed.
    for host in hosts {
        lock(host.client(), space, BlockRange::new(clients * length, 1)).await?;
    }
    let requests = || hosts.iter().filter_map(|host| host.view().counters().get("lock_requests")).sum::<u64>();
    let (counted, before) = (Counted::after(&arguments.of_kinds.load), requests());
    let drive = async |client: u64| {
        counted
            .repeat(async |count| {
                let (host, place) = match kind {
                    Kind::Datalock => (0, clients * (count + 2) + client),
                    Kind::Kept | Kind::Childlock => (0, client),
                    Kind::Recall => (count as usize % 2, client),
                };
                lock(hosts[host].client(), space, BlockRange::new(place * length, length)).await
            })
            .await
    };
    let mut run = Run::of(name_of(kind), try_join_all((0..clients).map(drive)).await?, arguments.of_kinds.load.seconds);
    let (all, spent) = (arguments.of_kinds.load.warm_up + arguments.of_kinds.load.seconds, requests() - before);
    // Those of the warm-up are not counted.
    run.round_trips = (spent as f64 * arguments.of_kinds.load.seconds / all) as u64;
    Ok(run)
}

/// Locks a range exclusively, and unlocks it.
async fn lock(client: &HostClient, object: ObjectId, range: BlockRange) -> Result<u64, Failure> {
    let extents = vec![LockExtent { position: 0, range, mode: LockMode::Exclusive }];
    let request = RangesRequest::Lock { object, extents, over: None, width: 0, wait: Some(PATIENCE) };
    let HostSuccess::RangeLocked { lock, .. } = client.call(request).await? else { unreachable!("that locks a range") };
    client.call(RangesRequest::Unlock { lock }).await?;
    Ok(0)
}
