//! `braid volume map`: prints the RAIDmap of a write (the parallel-RAID paper, Figure 7).

use crate::report;
use braid_admin::array_creation::exact_size;
use braid_admin::write_map::{Cell, MapBand, MapDevice, MapSite, Receiver, Role, Transfers, WriteMap};
use braid_admin::{Array, Failure};
use braid_base::BlockRange;
use braid_base::units::format_size;
use braid_blocks::{Base, Sent};
use braid_control::ReportedState;
use braid_layout::{Method, ParitySite, SitePolicy};
use braid_terminal::Common;
use braid_terminal::arguments::size;
use braid_terminal::output::table;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Show what each device does in a write: its RAIDmap
///
/// The map has a column for each device of the volume, and a row for each band of a stripe: rows in which
/// the write updates the same units. Devices that are out are taken into account. Nothing is written, and
/// no device is asked. docs/parallel-raid.md explains the map.
///
/// Examples:
///   braid volume map vol0 8KiB 24KiB
///   braid volume map vol0 1MiB 4KiB --parity-site at-parity
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// The offset of the write in the volume: 0, 4KiB, 1MiB
    #[arg(value_parser = size)]
    offset: u64,
    /// Its length, at most 4MiB
    #[arg(value_parser = size)]
    length: u64,
    /// As if the volume had this parity site. With parity-node, which is for comparison only, devices send old content, and the one with
    /// the parity gets the new content as well
    #[arg(long, value_parser = site(), value_name = "SITE")]
    parity_site: Option<MapSite>,
}

/// Reads a parity site; shells complete it.
fn site() -> impl TypedValueParser<Value = MapSite> {
    let names = SitePolicy::ALL.map(SitePolicy::name).into_iter().chain([MapSite::ParityNode.name()]);
    PossibleValuesParser::new(names).map(|name| name.parse().map_or(MapSite::ParityNode, MapSite::Policy))
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, offset, length, parity_site } = arguments;
    let map = Array::of(common.control()).map_write(&name, offset, length, parity_site).await?;
    report::done(common.json, json_of(&name, offset, length, &map), || text_of(&name, offset, length, &map))
}

fn text_of(name: &str, offset: u64, length: u64, map: &WriteMap) -> String {
    let (site, length, offset) = (map.site.name(), exact_size(length), exact_size(offset));
    let mut text = format!("a write of {length} at offset {offset} of volume {name}, parity site {site}\n\n");
    text += &table_of(map);
    text += &format!("\n{}\n", computed(map));
    let Transfers { from_host, to_host, between_devices } = map.transfers();
    let [from_host, to_host, between] = [from_host, to_host, between_devices].map(format_size);
    text += &format!("content sent: {from_host} from the host, {to_host} to the host, {between} between devices\n");
    if map.devices.iter().all(|device| device.member_state.is_none()) {
        text += "no monitor runs: all devices are assumed to be in\n";
    }
    for device in &map.awaited {
        text += &format!("device {} is unavailable: the write fails until it is back\n", device.0);
    }
    text += "\nfirst line of a cell: block of the volume, block on the device, where it is sent\n";
    text + "states: 1 read, 2 XOR old with new data, 3 send, 4 await, 5 XOR what comes in, 6 write\n"
}

/// Where the parity is computed, as a sentence.
fn computed(map: &WriteMap) -> String {
    let is_full = map.bands.iter().any(|band| band.method == Method::Full);
    match (map.computed_at, &map.reason) {
        (ParitySite::Originator, Some(reason)) => format!("the host computes what is written: {reason}"),
        (ParitySite::Originator, None) => "the host computes what is written".to_string(),
        _ if is_full => "the devices compute the parity, except that of full bands".to_string(),
        _ => "the devices compute the parity".to_string(),
    }
}

/// The map itself: for each band as many lines as its longest cell has.
fn table_of(map: &WriteMap) -> String {
    let header = ["stripe".to_string(), "method".to_string()].into_iter().chain(map.devices.iter().map(title));
    let mut lines: Vec<Vec<String>> = vec![header.collect()];
    for band in &map.bands {
        let (method, rows) = (method_name(band.method).to_string(), format!("rows {}", range(band.rows)));
        let left = [vec![band.stripe.to_string()], vec![method, rows]];
        let columns: Vec<Vec<String>> = left.into_iter().chain(band.cells.iter().map(cell_lines)).collect();
        let height = columns.iter().map(Vec::len).max().unwrap_or(0);
        lines.push(Vec::new());
        for line in 0..height {
            lines.push(columns.iter().map(|column| column.get(line).cloned().unwrap_or_default()).collect());
        }
    }
    table(&lines)
}

fn title(device: &MapDevice) -> String {
    match device.member_state {
        None | Some(ReportedState::In) => format!("device {}", device.id.0),
        Some(state) => format!("device {} ({})", device.id.0, state.name()),
    }
}

/// What a device does, a step on each line, after the first three parts of the paper's tuple and the type of the block.
fn cell_lines(cell: &Cell) -> Vec<String> {
    let Some(role) = cell.role else { return vec!["-".to_string()] };
    if cell.is_unused() {
        return vec!["-,-,-".to_string(), "unused".to_string()];
    }
    let blocks = |blocks: Option<BlockRange>| blocks.map_or("-".to_string(), range);
    let to = cell.sends.map_or("-".to_string(), |(_, to)| receiver_name(to));
    let tuple = format!("{},{},{to}", blocks(cell.volume_blocks), blocks(cell.device_blocks));
    let mut lines = vec![tuple, role.to_string()];
    let (all, read) = (cell.device_blocks.map_or(0, |blocks| blocks.count), count(&cell.reads));
    match read {
        0 => {}
        _ if read == all => lines.push("read old".to_string()),
        _ => lines.push(format!("read {read} of {all}")),
    }
    if let Some((what, to)) = cell.sends {
        if what == Sent::Change {
            lines.push("XOR with new".to_string());
        }
        lines.push(format!("send {} to {}", sent_name(what), receiver_name(to)));
    }
    if let Some(computed) = &cell.computes {
        let from: Vec<String> = computed.from.iter().map(|device| device.0.to_string()).collect();
        if !from.is_empty() {
            lines.push(format!("await {}", from.join(", ")));
        }
        lines.push("XOR".to_string());
        if computed.adds_from_host {
            lines.push("XOR host's data".to_string());
        }
    }
    if cell.writes {
        lines.push("write".to_string());
    }
    if cell.is_lost {
        lines.push("not written".to_string());
        return lines;
    }
    let states: Vec<String> = cell.states().iter().map(u8::to_string).collect();
    lines.push(format!("states {}", states.join(" ")));
    lines
}

fn count(ranges: &[BlockRange]) -> u64 {
    ranges.iter().map(|range| range.count).sum()
}

fn range(blocks: BlockRange) -> String {
    match blocks.count {
        1 => blocks.start.to_string(),
        _ => format!("{}-{}", blocks.start, blocks.end() - 1),
    }
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::Full => "full",
        Method::Large => "large",
        Method::Small => "small",
    }
}

fn sent_name(what: Sent) -> &'static str {
    match what {
        Sent::Old => "old",
        Sent::New => "new",
        Sent::Change => "change",
    }
}

fn receiver_name(to: Receiver) -> String {
    match to {
        Receiver::Host => "host".to_string(),
        Receiver::Device(device) => device.0.to_string(),
    }
}

fn json_of(name: &str, offset: u64, length: u64, map: &WriteMap) -> Value {
    let device =
        |device: &MapDevice| json!({"id": device.id.0, "member_state": device.member_state.map(ReportedState::name)});
    let Transfers { from_host, to_host, between_devices } = map.transfers();
    json!({
        "volume": name,
        "offset": offset,
        "length": length,
        "parity_site": map.site.name(),
        "computed_at": match map.computed_at {
            ParitySite::Originator => "originator",
            ParitySite::AtParity => "at-parity",
            ParitySite::ParityNode => "parity-node",
        },
        "reason": map.reason,
        "from_host_bytes": from_host,
        "to_host_bytes": to_host,
        "between_devices_bytes": between_devices,
        "awaited_devices": map.awaited.iter().map(|device| device.0).collect::<Vec<_>>(),
        "devices": map.devices.iter().map(device).collect::<Vec<_>>(),
        "bands": map.bands.iter().map(|band| json_of_band(map, band)).collect::<Vec<_>>(),
    })
}

fn json_of_band(map: &WriteMap, band: &MapBand) -> Value {
    let cells = map.devices.iter().zip(&band.cells).map(|(device, cell)| json_of_cell(device, cell));
    json!({
        "stripe": band.stripe,
        "first_row": band.rows.start,
        "rows": band.rows.count,
        "method": method_name(band.method),
        "cells": cells.collect::<Vec<_>>(),
    })
}

fn json_of_cell(device: &MapDevice, cell: &Cell) -> Value {
    let reads = |range: &BlockRange| json!({"first_block": range.start, "blocks": range.count});
    json!({
        "device": device.id.0,
        "role": cell.role.map(Role::name),
        "used": !cell.is_unused(),
        "volume_block": cell.volume_blocks.map(|blocks| blocks.start),
        "device_block": cell.device_blocks.map(|blocks| blocks.start),
        "lost": cell.is_lost,
        "reads": cell.reads.iter().map(reads).collect::<Vec<_>>(),
        "sends": cell.sends.map(|(what, _)| sent_name(what)),
        "to_host": matches!(cell.sends, Some((_, Receiver::Host))),
        "to_device": match cell.sends {
            Some((_, Receiver::Device(to))) => Some(to.0),
            _ => None,
        },
        "parity": cell.computes.as_ref().map(|computed| json!({
            "base": match computed.base {
                Base::Old => "old",
                Base::Zeros => "zeros",
            },
            "from_devices": computed.from.iter().map(|device| device.0).collect::<Vec<_>>(),
            "from_host": computed.adds_from_host,
        })),
        "writes": cell.writes,
        "states": cell.states(),
    })
}

#[cfg(test)]
mod tests;
