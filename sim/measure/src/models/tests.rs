//! Tests of the queues against known results.

use super::*;
use crate::named::Named;
use crate::parameters::Parameters;
use bytes::Bytes;

fn parameters() -> Parameters {
    Parameters::parse(include_str!("../../../experiments/parameters/shared-array.toml")).expect("the baseline is valid")
}

/// The mean wait at one server with Poisson arrivals, in units of the mean service time.
fn mean_wait(load: f64, service: impl Fn(&mut Sampler) -> f64) -> f64 {
    let (mut sampler, mut server) = (Sampler::new(7), Server::default());
    let (mut now, mut waited, count) = (0.0, 0.0, 400_000);
    for _ in 0..count {
        now += sampler.exponential(1e6 / load);
        let takes = service(&mut sampler);
        let done = server.serve(Time(now as u64), Duration::from_nanos(takes as u64));
        waited += done.0 as f64 - now - takes;
    }
    waited / f64::from(count) / 1e6
}

#[test]
fn a_server_with_constant_service_is_m_d_1() {
    for load in [0.3f64, 0.6, 0.8] {
        let expected = load / (2.0 * (1.0 - load));
        let seen = mean_wait(load, |_| 1e6);
        assert!((seen / expected - 1.0).abs() < 0.03, "at {load}: {seen} for {expected}");
    }
}

#[test]
fn a_server_with_exponential_service_is_m_m_1() {
    for load in [0.3f64, 0.6, 0.8] {
        let expected = load / (1.0 - load);
        let seen = mean_wait(load, |sampler| sampler.exponential(1e6));
        assert!((seen / expected - 1.0).abs() < 0.05, "at {load}: {seen} for {expected}");
    }
}

fn read(offset: u64, length: usize) -> DiskCommand {
    DiskCommand::Read { offset, length }
}

fn write(offset: u64) -> DiskCommand {
    DiskCommand::Write {
        offset,
        data: vec![Bytes::from_static(&[0; 1000]), Bytes::from_static(&[0; 1000])],
        durable: true,
    }
}

/// A disk that takes exactly 8 ms for positioning and 0.06 us for each byte, unless `change` says otherwise.
fn disk(change: impl Fn(&mut Disk)) -> DiskModel {
    let mut model = parameters().disk;
    model.positioning_deviation_ms = 0.0;
    (model.arms, model.read_hit_ratio, model.write_hit_ratio) = (1, 0.0, 0.0);
    change(&mut model);
    DiskModel::new(&model)
}

fn ms(count: f64) -> Time {
    Time(0).after(milliseconds(count))
}

#[test]
fn a_disk_positions_transfers_and_queues() {
    let (mut disk, mut sampler) = (disk(|_| {}), Sampler::new(1));
    assert_eq!(disk.issue(Time(0), &read(0, 10_000), &mut sampler), ms(8.6));
    assert_eq!(disk.issue(ms(1.0), &write(0), &mut sampler), ms(8.6 + 8.12));
    assert_eq!(disk.issue(ms(100.0), &read(0, 0), &mut sampler), ms(108.0));
    assert_eq!(disk.busy(ms(108.0)), milliseconds(24.72));
    assert_eq!(disk.busy(ms(103.0)), milliseconds(19.72));
}

#[test]
fn a_second_arm_takes_what_the_first_can_not() {
    let (mut disk, mut sampler) = (disk(|model| model.arms = 2), Sampler::new(1));
    let done: Vec<_> = (0..3).map(|_| disk.issue(Time(0), &read(0, 0), &mut sampler)).collect();
    assert_eq!(done, [ms(8.0), ms(8.0), ms(16.0)]);
}

#[test]
fn hits_spare_the_positioning() {
    let mut sampler = Sampler::new(1);
    let mut caching = disk(|model| model.read_hit_ratio = 1.0);
    assert_eq!(caching.issue(Time(0), &read(0, 1000), &mut sampler), ms(0.06));
    assert_eq!(caching.issue(ms(1.0), &write(0), &mut sampler), ms(9.12));
    let mut updating = disk(|model| model.update_hit_ratio = 1.0);
    assert_eq!(updating.issue(Time(0), &read(4096, 1000), &mut sampler), ms(8.06));
    assert_eq!(updating.issue(ms(100.0), &write(4096), &mut sampler), ms(100.12), "the block was just read");
    assert_eq!(updating.issue(ms(200.0), &write(4096), &mut sampler), ms(208.12), "the earlier read counts only once");
}

#[test]
fn writes_may_be_reported_before_they_are_done() {
    let mut sampler = Sampler::new(1);
    let mut at_once = disk(|model| model.write_report = WriteReport::AtOnce);
    assert_eq!(at_once.issue(Time(0), &write(0), &mut sampler), ms(0.12));
    assert_eq!(at_once.issue(Time(0), &read(0, 0), &mut sampler), ms(16.12), "the read waits for the write");
    let mut absorbed = disk(|model| model.write_report = WriteReport::Absorbed);
    assert_eq!(absorbed.issue(Time(0), &write(0), &mut sampler), ms(0.12));
    assert_eq!(absorbed.issue(Time(0), &read(0, 0), &mut sampler), ms(8.0));
}

#[test]
fn links_are_shared_as_said() {
    let mut sampler = Sampler::new(1);
    let network = |links: Links| {
        let parameters = Network { links, overhead_max_ms: 1.0, header_bytes: 0, ..parameters().network };
        NetworkModel::new(&parameters)
    };
    // 10,000 bytes take 1 ms, and each message takes 1 ms of network overhead.
    for (links, second) in [(Links::Unshared, 2.0), (Links::Sending, 3.0), (Links::Both, 3.0)] {
        let (network, mut link) = (network(links), Link::default());
        assert_eq!(network.send(Time(0), &mut link, 10_000, &mut sampler), ms(2.0));
        assert_eq!(network.send(Time(0), &mut link, 10_000, &mut sampler), ms(second), "{links:?}");
    }
    let (network, mut link) = (network(Links::Both), Link::default());
    assert_eq!(network.receive(ms(2.0), &mut link, 10_000), ms(2.0), "the link is idle");
    assert_eq!(network.receive(ms(2.0), &mut link, 10_000), ms(3.0));
}

#[test]
fn overheads_are_uniform() {
    let (network, mut sampler) = (NetworkModel::new(&parameters().network), Sampler::new(3));
    let latencies: Vec<f64> = (0..20_000)
        .map(|_| network.send(Time(0), &mut Link::default(), 936, &mut sampler).0 as f64 / 1e6 - 0.1)
        .collect();
    assert!(latencies.iter().all(|latency| (0.999_999..=2.000_001).contains(latency)));
    let mean = latencies.iter().sum::<f64>() / latencies.len() as f64;
    assert!((mean - 1.5).abs() < 0.01, "{mean}");
}
