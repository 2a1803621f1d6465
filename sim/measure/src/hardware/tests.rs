//! Tests of the queues against known results.

use super::*;
use crate::named::Named;
use crate::parameters::Parameters;

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
fn servers_with_constant_and_exponential_service_are_m_d_1_and_m_m_1() {
    for load in [0.3f64, 0.6, 0.8] {
        let expected = load / (1.0 - load);
        for (model, expected, seen, tolerance) in [
            ("M/D/1", expected / 2.0, mean_wait(load, |_| 1e6), 0.03),
            ("M/M/1", expected, mean_wait(load, |sampler| sampler.exponential(1e6)), 0.05),
        ] {
            assert!((seen / expected - 1.0).abs() < tolerance, "{model} at {load}: {seen} for {expected}");
        }
    }
}

fn ms(count: f64) -> Time {
    Time(0).after(milliseconds(count))
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
