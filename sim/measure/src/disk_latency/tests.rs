//! Tests of the model against times computed by hand.

use super::*;
use crate::named::Named;
use crate::parameters::Parameters;
use bytes::Bytes;

fn parameters() -> Parameters {
    Parameters::parse(include_str!("../../../experiments/parameters/shared-array.toml")).expect("the baseline is valid")
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
