//! `cargo xtask picture`: draws the README's picture of hosts, devices, and their connections. The picture has its own background, so
//! that it is readable on light and dark pages.

use crate::prelude::*;
use crate::root;
use std::fmt::Write;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 356;
const HOSTS: [(&str, &str); 3] = [("host 1", "virtual machine"), ("host 2", "file system"), ("host 3", "your program")];
const DEVICES: u32 = 5;
const HOSTS_TOP: u32 = 30;
const HOST_HEIGHT: u32 = 76;
const DEVICES_TOP: u32 = 226;
const DEVICE_HEIGHT: u32 = 62;
const HOST_WIDTH: u32 = 190;
const DEVICE_WIDTH: u32 = 116;

/// Writes the picture into the repository.
pub fn write() -> Result<()> {
    let path = path();
    std::fs::write(&path, draw()).with_context(|| format!("{} can't be written", path.display()))
}

fn path() -> PathBuf {
    root().join("docs/braid.svg")
}

fn draw() -> String {
    let mut svg = String::new();
    let mut line = |text: &str| writeln!(svg, "{text}").expect("a string takes everything");
    line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"14\" text-anchor=\"middle\">"
    ));
    line(
        "<title>Hosts and devices of a Braid array: every host speaks to every device, and nothing is in the middle</title>",
    );
    line(&rectangle(0, 0, WIDTH, HEIGHT, "#f6f8fa", "#d0d7de"));
    for host in 0..HOSTS.len() as u32 {
        for device in 0..DEVICES {
            let (from, to) = (center(host, HOSTS.len() as u32), center(device, DEVICES));
            line(&format!(
                "<line x1=\"{from}\" y1=\"{}\" x2=\"{to}\" y2=\"{DEVICES_TOP}\" stroke=\"#8c959f\" stroke-width=\"1.5\"/>",
                HOSTS_TOP + HOST_HEIGHT
            ));
        }
    }
    for (index, (name, user)) in (0..).zip(HOSTS) {
        let middle = center(index, HOSTS.len() as u32);
        line(&rectangle(middle - HOST_WIDTH / 2, HOSTS_TOP, HOST_WIDTH, HOST_HEIGHT, "#ddf4ff", "#0969da"));
        line(&text(middle, HOSTS_TOP + 21, &format!("<tspan font-weight=\"bold\">{name}</tspan>: {user}")));
        line(&text(middle, HOSTS_TOP + 43, "NBD or the library"));
        line(&text(middle, HOSTS_TOP + 64, "its own RAID controller"));
    }
    line(&rectangle(WIDTH / 2 - 206, 152, 412, 28, "#ffffff", "#d0d7de"));
    line(&text(WIDTH / 2, 171, "requests with timestamps; no controller in the middle"));
    for device in 0..DEVICES {
        let middle = center(device, DEVICES);
        line(&rectangle(middle - DEVICE_WIDTH / 2, DEVICES_TOP, DEVICE_WIDTH, DEVICE_HEIGHT, "#dafbe1", "#1a7f37"));
        line(&text(middle, DEVICES_TOP + 25, &format!("<tspan font-weight=\"bold\">device {device}</tspan>")));
        line(&text(middle, DEVICES_TOP + 47, "one disk"));
    }
    line(&text(
        WIDTH / 2,
        HEIGHT - 36,
        "Each device orders the requests that reach it and refuses what comes too late.",
    ));
    line(&text(WIDTH / 2, HEIGHT - 15, "Parity is spread over the devices: any one of them may fail."));
    line("</svg>");
    svg
}

/// The middle of a box, in a row of `count` boxes.
fn center(index: u32, count: u32) -> u32 {
    WIDTH * (2 * index + 1) / (2 * count)
}

fn rectangle(x: u32, y: u32, width: u32, height: u32, fill: &str, stroke: &str) -> String {
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
    )
}

fn text(x: u32, y: u32, words: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" fill=\"#1f2328\">{words}</text>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_is_the_one_that_is_drawn() {
        let checked_in = std::fs::read_to_string(path()).expect("the picture is in the repository");
        assert!(checked_in == draw(), "docs/braid.svg is not what `cargo xtask picture` draws");
    }
}
