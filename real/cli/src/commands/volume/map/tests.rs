//! Maps compared with Figure 7 of the parallel-RAID paper: four nodes, left-symmetric RAID 5, units of one block, and a write of the blocks
//! 2 to 7.

use super::*;
use braid_base::{BLOCK_BYTES, DeviceId, VolumeId};
use braid_layout::{Layout, RaidLevel, VolumeDescription};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn volume(level: RaidLevel, devices: u16) -> VolumeDescription {
    let layout = Layout::new(level, devices.into(), 1).unwrap();
    let devices = (0..devices).map(DeviceId).collect();
    let parity_site = SitePolicy::AtParity;
    VolumeDescription { parity_site, ..VolumeDescription::new(VolumeId(1), 24 * BLOCK, layout, devices) }
}

fn paper() -> VolumeDescription {
    volume(RaidLevel::Raid5 { data: 3 }, 4)
}

/// The map of the figure's write, with one device in another state than in.
fn map(volume: &VolumeDescription, site: MapSite, other: Option<(u16, ReportedState)>) -> WriteMap {
    let state = |id: &DeviceId| other.filter(|(other, _)| *other == id.0).map_or(ReportedState::In, |(_, state)| state);
    let device = |id: &DeviceId| MapDevice { id: *id, member_state: Some(state(id)) };
    WriteMap::new(volume, volume.devices.iter().map(device).collect(), site, 2 * BLOCK, 6 * BLOCK).unwrap()
}

/// The first lines of the cells of a band: the paper's tuple, and the type of the block.
fn figure(map: &WriteMap, stripe: usize) -> Vec<String> {
    map.bands[stripe].cells.iter().map(|cell| cell_lines(cell)[..2].join(",")).collect()
}

/// Deviations from the figure: nothing is sent for a full stripe, since the host computes its parity. The figure marks block 8 in stripe 2 as
/// unused; it must be read and sent.
#[test]
fn the_example_of_the_paper_is_its_figure() {
    let map = map(&paper(), MapSite::Policy(SitePolicy::AtParity), None);
    assert_eq!(figure(&map, 0), ["-,-,-,unused", "-,-,-,unused", "2,0,3,data", "-,0,-,parity"]);
    assert_eq!(figure(&map, 1), ["4,1,-,data", "5,1,-,data", "-,1,-,parity", "3,1,-,data"]);
    assert_eq!(figure(&map, 2), ["8,2,1,data", "-,2,-,parity", "6,2,1,data", "7,2,1,data"]);
    let methods: Vec<&str> = map.bands.iter().map(|band| method_name(band.method)).collect();
    assert_eq!(methods, ["small", "full", "large"]);
}

#[test]
fn the_map_is_printed_as_a_table() {
    let map = map(&paper(), MapSite::Policy(SitePolicy::AtParity), None);
    let expected = "\
stripe  method  device 0       device 1       device 2          device 3

0       small   -,-,-          -,-,-          2,0,3             -,0,-
        rows 0  unused         unused         data              parity
                                              read old          read old
                                              XOR with new      await 2
                                              send change to 3  XOR
                                              write             write
                                              states 1 2 3 6    states 1 4 5 6

1       full    4,1,-          5,1,-          -,1,-             3,1,-
        rows 0  data           data           parity            data
                write          write          write             write
                states 6       states 6       states 6          states 6

2       large   8,2,1          -,2,-          6,2,1             7,2,1
        rows 0  data           parity         data              data
                read old       await 0, 2, 3  send new to 1     send new to 1
                send old to 1  XOR            write             write
                states 1 3     write          states 3 6        states 3 6
                               states 4 5 6
";
    assert_eq!(table_of(&map), expected);
    let sent = Transfers { from_host: 7 * BLOCK, to_host: 0, between_devices: 4 * BLOCK };
    assert_eq!(map.transfers(), sent, "six blocks, and the parity of the full stripe");
}

#[test]
fn a_host_that_computes_parity_reads_and_writes_the_same_blocks() {
    let at_host = map(&paper(), MapSite::Policy(SitePolicy::Originator), None);
    assert_eq!(figure(&at_host, 0), ["-,-,-,unused", "-,-,-,unused", "2,0,host,data", "-,0,host,parity"]);
    assert_eq!(figure(&at_host, 2), ["8,2,host,data", "-,2,-,parity", "6,2,-,data", "7,2,-,data"]);
    assert_eq!(at_host.bands[0].cells[2].states(), [1, 3, 6]);
    let sent = Transfers { from_host: 9 * BLOCK, to_host: 3 * BLOCK, between_devices: 0 };
    assert_eq!((at_host.transfers(), at_host.reason), (sent, None));
}

#[test]
fn a_parity_node_gets_the_new_content_as_well() {
    let map = map(&paper(), MapSite::ParityNode, None);
    assert_eq!(cell_lines(&map.bands[0].cells[2])[2..], ["read old", "send old to 3", "write", "states 1 3 6"]);
    let parity = ["read old", "await 2", "XOR", "XOR host's data", "write", "states 1 4 5 6"];
    assert_eq!(cell_lines(&map.bands[0].cells[3])[2..], parity);
    let sent = Transfers { from_host: 9 * BLOCK, to_host: 0, between_devices: 2 * BLOCK };
    assert_eq!(map.transfers(), sent);
}

/// Table III: what can't be written goes into the parity, and without parity nothing is read.
#[test]
fn a_device_that_is_out_changes_the_methods() {
    let out = |device| map(&paper(), MapSite::Policy(SitePolicy::AtParity), Some((device, ReportedState::Out)));
    let (data, parity) = (out(2), out(3));
    assert_eq!(title(&data.devices[2]), "device 2 (out)");
    assert_eq!(data.bands[0].method, Method::Large);
    assert_eq!(cell_lines(&data.bands[0].cells[2]), ["2,0,-", "data", "not written"]);
    assert_eq!(
        cell_lines(&data.bands[0].cells[3]),
        ["-,0,-", "parity", "await 0, 1", "XOR", "XOR host's data", "write", "states 4 5 6"]
    );
    assert_eq!(figure(&parity, 0), ["-,-,-,unused", "-,-,-,unused", "2,0,-,data", "-,-,-,unused"]);
    let awaited = map(&paper(), MapSite::Policy(SitePolicy::AtParity), Some((2, ReportedState::Unavailable)));
    assert_eq!(awaited.awaited, [DeviceId(2)]);
}

#[test]
fn volumes_without_parity_have_maps_too() {
    let mirrored = volume(RaidLevel::Raid1 { copies: 2 }, 3);
    let map = map(&mirrored, MapSite::Policy(SitePolicy::AtParity), None);
    let used = map.bands[0].cells.iter().filter(|cell| !cell.is_unused());
    assert!(used.clone().all(|cell| cell.states() == [6]) && used.count() == 2);
    let spare = map.bands[0].cells.iter().filter(|cell| cell.role.is_none());
    assert_eq!(spare.count(), 1, "stripes are narrower than the ring");
    assert_eq!(computed(&map), "the host computes what is written: its layout has no parity");
    assert_eq!(map.transfers().from_host, 12 * BLOCK);
}

#[test]
fn a_map_for_programs_says_the_same() {
    let map = map(&paper(), MapSite::Policy(SitePolicy::AtParity), None);
    let json = json_of("vol0", 2 * BLOCK, 6 * BLOCK, &map);
    assert_eq!((&json["computed_at"], &json["parity_site"]), (&"at-parity".into(), &"at-parity".into()));
    let cells = &json["bands"][0]["cells"];
    assert_eq!((&cells[2]["sends"], &cells[2]["to_device"]), (&"change".into(), &3.into()));
    assert_eq!(cells[3]["parity"], json!({"base": "old", "from_devices": [2], "from_host": false}));
    assert_eq!(cells[3]["states"], json!([1, 4, 5, 6]));
    assert_eq!(cells[0]["used"], false);
}
