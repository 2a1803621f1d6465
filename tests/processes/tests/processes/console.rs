//! The commands in README and pages: all are valid, and those that are not marked `norun` do what the pages say.

use crate::prelude::*;
use braid_processes::console::{blocks, mistake, pages, root, run_page};
use braid_processes::each;

/// Pages tested concurrently.
const AT_ONCE: usize = 3;

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).expect("a page can be read")
}

#[test]
fn every_command_of_the_pages_is_understood() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        match blocks(&read(&page)) {
            Err(error) => wrong.push(format!("{page}: {error}")),
            Ok(blocks) => {
                for command in blocks.iter().flat_map(|block| &block.commands) {
                    count += 1;
                    wrong.extend(mistake(&command.text).map(|why| format!("{page}, line {}: {why}", command.line)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} commands were found");
}

#[test]
fn the_pages_commands_do_what_the_pages_say() {
    let mut pages: Vec<_> = pages().into_iter().map(|page| (blocks(&read(&page)).unwrap_or_default(), page)).collect();
    pages.retain(|(blocks, _)| blocks.iter().any(|block| block.language == "console" && block.norun.is_none()));
    assert!(pages.len() > 5, "only {} pages have commands that are run", pages.len());
    let wrong = Mutex::new(Vec::new());
    each(&pages, AT_ONCE, |(blocks, page)| {
        let begun = Instant::now();
        let outcome = run_page(blocks);
        println!("{page}: {:.1?}", begun.elapsed());
        if outcome.status != Some(0) {
            wrong.lock().unwrap().push(format!("=== {page}\n{outcome}"));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn mistakes_in_pages_are_found() {
    for line in [
        "braid volume create db --sise 4GiB",
        "braid volume create db --size 4Gi8",
        "braid volumes list",
        "kill -9 $(braid status --no-such-option | awk '{ print $6 }')",
        "braid up --degraded && braid staus",
        "cargo run --release -- upp",
        "braid sim attack --rnus 300",
        "cargo xtask tests",
        "until braid status --volume | grep -q degraded; do sleep 0.2; done",
    ] {
        assert!(mistake(line).is_some(), "{line}");
    }
    assert_eq!(mistake("braid recipe lock run 2:11 1.1 -- ./backup.sh --any-option '# | braid nothing'"), None);

    for page in [
        "```console norun:\n$ braid up\n```",
        "```console later\n$ braid up\n```",
        "```console\nbraid up\n```",
        "```\n$ braid up\n```",
    ] {
        assert!(blocks(page).is_err(), "{page}");
    }

    let ends = |page: &str| run_page(&blocks(page).expect("it is understood"));
    let page = "```console\n$ exit_with() { return $1; }    # two functions\n$ exit_with 3   # status 3: as it says\n$ echo 'a # b'\n```";
    assert!(ends(page).done().stdout.contains("\na # b\n"));
    let wrong = ends("```console\n$ true\n$ false\n$ touch reached\n```");
    assert!(wrong.status == Some(1) && wrong.stdout.contains("line 3: ended with status 1, not 0"), "{wrong}");
    let wrong = ends("```console\n$ true    # status 1: that is not so\n```");
    assert!(wrong.status == Some(1) && wrong.stdout.contains("line 2: ended with status 0, not 1"), "{wrong}");
    let wrong = ends("```console\n$ braid volume info nothing\n```");
    assert!(wrong.status == Some(1) && wrong.stdout.contains("line 2: ended with status 3, not 0"), "{wrong}");
}
