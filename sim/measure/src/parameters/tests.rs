//! Tests of parameters: invalid values and their error messages.

use super::*;
use crate::named::Sections;

fn baseline() -> Parameters {
    Parameters::parse(include_str!("../../../experiments/parameters/shared-array.toml")).expect("the baseline is valid")
}

#[test]
fn every_number_has_limits_and_lies_within_them() {
    let baseline = baseline();
    for (name, value) in baseline.list() {
        assert_eq!(baseline.limits_of(&name).is_some(), value.parse::<f64>().is_ok(), "{name}");
    }
}

#[test]
fn any_parameter_can_be_set() {
    let baseline = baseline();
    let changed =
        baseline.set("system.hosts = 32").and_then(|changed| changed.set("disk.write_report=absorbed")).unwrap();
    assert_eq!((changed.system.hosts, changed.disk.write_report), (32, WriteReport::Absorbed));
    for (name, value) in baseline.list() {
        assert_eq!(baseline.set(&format!("{name}={value}")).as_ref(), Ok(&baseline), "{name}");
    }
}

#[test]
fn impossible_parameters_are_refused_with_the_possible_ones() {
    let baseline = baseline();
    for (assignment, advice) in [
        ("system.hosts", "write KEY=VALUE"),
        ("system.host=3", "there is no parameter 'system.host'; choose one of"),
        ("hosts=3", "system.hosts"),
        ("system.hosts=0", "system.hosts can't be 0: choose a number from 1 to 1000"),
        ("system.hosts=2.5", "choose a whole number from 1 to 1000"),
        ("system.hosts=-1", "from 1 to 1000"),
        ("disk.read_hit_ratio=1.01", "from 0 to 1"),
        ("disk.read_hit_ratio=NaN", "from 0 to 1"),
        ("workload.alignment=byte", "`unit`"),
        ("system.lock_acquisition=random", "`timeout`"),
        ("run.operations=1", "from 100 to"),
        ("system.unit_kib=24", "power of two"),
        ("system.devices=4", "stripes of system.data_units=4 and a parity unit don't fit"),
        ("workload.size_units_min=5", "is above workload.size_units_max"),
        ("workload.active_fraction=0.0001", "smaller than a request"),
        ("network.overhead_min_ms=3", "is above network.overhead_max_ms"),
    ] {
        let message = baseline.set(assignment).unwrap_err().to_string();
        assert!(message.contains(advice), "{assignment}: {message}");
    }
}

#[test]
fn blocks_have_no_halves() {
    let halves = baseline().set("workload.alignment=half-unit").expect("units of 8 KiB have two blocks");
    assert!(halves.set("system.unit_kib=4").unwrap_err().to_string().contains("no halves"));
}

#[test]
fn files_must_say_everything_and_nothing_else() {
    let text = include_str!("../../../experiments/parameters/shared-array.toml");
    let less = text.replace("hosts = 16", "");
    assert!(Parameters::parse(&less).unwrap_err().to_string().contains("missing field `hosts`"));
    let more = text.replace("[disk]", "[disk]\nheads = 3");
    assert!(Parameters::parse(&more).unwrap_err().to_string().contains("unknown field `heads`"));
}
