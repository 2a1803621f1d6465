//! A load generator for etcd: each client has its own key, and replaces its value in transactions that compare the value first. All
//! transactions succeed. Prints one JSON object.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Compare-and-swaps on distinct keys of an etcd server
#[derive(Parser)]
struct Arguments {
    /// The address of the server
    #[arg(long, default_value = "http://127.0.0.1:2379")]
    endpoint: String,
    /// Concurrent clients, each with its own key
    #[arg(long, default_value_t = 32)]
    clients: usize,
    /// Connections shared by the clients
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Duration of the measurement in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Size of a value in bytes
    #[arg(long, default_value_t = 8)]
    bytes: usize,
}

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut connections = Vec::new();
    for _ in 0..arguments.connections.max(1) {
        connections.push(Client::connect([&arguments.endpoint], None).await.context("can't reach the server")?);
    }
    let begun = Instant::now();
    let (from, until) = (begun + Duration::from_millis(500), begun + Duration::from_secs_f64(0.5 + arguments.seconds));
    let mut clients = JoinSet::new();
    for number in 0..arguments.clients {
        let connection = connections[number % connections.len()].clone();
        clients.spawn(swap(connection, number, arguments.bytes, from, until));
    }
    let mut latencies = Histogram::<u64>::new(3)?;
    while let Some(done) = clients.join_next().await {
        latencies.add(done??)?;
    }
    let milliseconds = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e6;
    let report = serde_json::json!({
        "schema": 1,
        "operations": latencies.len(),
        "seconds": arguments.seconds,
        "per_second": latencies.len() as f64 / arguments.seconds,
        "median_milliseconds": milliseconds(0.5),
        "p99_milliseconds": milliseconds(0.99),
    });
    println!("{report}");
    Ok(())
}

/// One client: returns the latencies in nanoseconds of the transactions that completed between the two times.
async fn swap(mut client: Client, number: usize, bytes: usize, from: Instant, until: Instant) -> Result<Histogram<u64>> {
    let key = format!("swap-{number}");
    let value = |count: u64| -> Vec<u8> {
        let mut value = count.to_be_bytes().to_vec();
        value.resize(bytes.max(8), 0);
        value
    };
    client.put(key.clone(), value(0), None).await?;
    let mut latencies = Histogram::new(3)?;
    for count in 0.. {
        let begun = Instant::now();
        if begun >= until {
            break;
        }
        let compare = Compare::value(key.clone(), CompareOp::Equal, value(count));
        let put = TxnOp::put(key.clone(), value(count + 1), None);
        let answer = client.txn(Txn::new().when([compare]).and_then([put])).await?;
        ensure!(answer.succeeded(), "the transaction on {key} failed, though no other client writes the key");
        if begun >= from {
            latencies.record(begun.elapsed().as_nanos() as u64)?;
        }
    }
    Ok(latencies)
}
