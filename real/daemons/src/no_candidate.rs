//! In a program that is built without the feature `cluster`: it has no client of etcd, so it can't run the monitor of an array on several
//! machines. All else of such an array it can do.

use braid_admin::cluster_recovery::Found;
use braid_admin::failure::Failure;
use braid_control::{ArrayDescription, ClusterFile, ControlPlane};
use braid_shell::Address;
use std::time::Duration;

pub async fn create(_: &ClusterFile, _: ArrayDescription) -> Result<(), Failure> {
    Err(missing())
}

pub async fn find(_: &ClusterFile) -> Result<Found, Failure> {
    Err(missing())
}

pub async fn find_unled(_: &ClusterFile) -> Result<Found, Failure> {
    Err(missing())
}

pub async fn replace<H, C>(_: &ClusterFile, _: Found, _: (H, C, &[u8])) -> Result<(), Failure> {
    Err(missing())
}

pub async fn run(
    _: &ControlPlane,
    _: Option<Duration>,
    _: impl FnOnce(&Address),
    _: impl Future<Output = ()>,
) -> Result<(), Failure> {
    Err(missing())
}

fn missing() -> Failure {
    let message = "this program was built without the part that speaks to etcd";
    Failure::usage("no-cluster", message).hint("build it with `cargo build --release --features cluster`")
}
