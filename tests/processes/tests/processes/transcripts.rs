//! The pages in `transcripts`: commands do what the pages contain, and say so.

use crate::prelude::*;
use braid_processes::each;
use braid_processes::transcript::{folder, sections};
use std::sync::{MutexGuard, TryLockError};

/// Sections of a page that are run at once, if they find a place: otherwise the longest page would be the last one to end, alone.
const AT_ONCE: usize = 3;
/// A place for each section that runs, of whatever page: as many as tests run at once.
static PLACES: [Mutex<()>; 6] = [const { Mutex::new(()) }; 6];

macro_rules! pages {
    ($($page:ident)*) => {
        const PAGES: &[&str] = &[$(stringify!($page)),*];
        $(#[test] fn $page() { run_page(stringify!($page)); })*
    };
}

pages! {
    arrays clients commands daemons devices disks doctor files folders lifecycle lost_devices metadata_servers mounts nodes objects
    recovery volumes watching
}

fn run_page(name: &str) {
    let page = fs::read_to_string(folder().join(name).with_extension("md")).expect("a page can be read");
    each(&sections(name, &page), AT_ONCE, |section| {
        let _place = place();
        let begun = Instant::now();
        section.run();
        println!("{}: {:.1?}", section.name, begun.elapsed());
    });
}

/// Waits for a free place. A section that fails frees its own, too.
fn place() -> MutexGuard<'static, ()> {
    loop {
        for place in &PLACES {
            match place.try_lock() {
                Ok(place) => return place,
                Err(TryLockError::Poisoned(place)) => return place.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_page_is_run() {
    let names = fs::read_dir(folder()).expect("it can be listed").map(|entry| entry.expect("a name").path());
    let mut pages: Vec<PathBuf> = names.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    pages.sort();
    assert!(pages.iter().filter_map(|path| path.file_stem()?.to_str()).eq(PAGES.iter().copied()), "{pages:?}");
}

#[test]
fn other_output_than_the_expected_is_found() {
    const JSON: &str = r#"echo '{"schema": 2, "a": {"b": [1]}, "c": "some words"}'"#;
    const ERROR: &str = r#"{ echo '{"error": {"code": "x", "message": "some words", "hint": null}}'; exit 3; }"#;
    for (command, expected, is_so) in [
        ("true    # status 1, it fails", "", false),
        ("false", "", false),
        ("false | true", "", false),
        ("false    # status 1, it fails", "", true),
        ("echo a; echo b", "a", false),
        ("echo a; echo b", "a\nb", true),
        ("echo a b >&2", "~ a b\n! a c", true),
        ("echo a", "~ b", false),
        ("echo a", "! a", false),
        ("if [ -e there ]; then echo a; fi; touch there    # soon", "a", true),
        (JSON, ".a.b[0] = 1\n.a.b[0] > 0\n.a.b[1] = null\n.a.b != []\n.c ~ me wo\n.a ~ [1]", true),
        (JSON, ".a.b[0] = 2", false),
        (JSON, ".a.b[0] > 1", false),
        (JSON, ".d > 1", false),
        (JSON, ".d != null", false),
        (JSON, ".c ~ other words", false),
        ("echo '{\"a\": 1}'", ".a = 1", false),
        (&format!("{ERROR}    # status 3: x"), "some words\n! other words", true),
        (&format!("{ERROR}    # status 3: y"), "", false),
        (&format!("{ERROR}    # status 2: x"), "", false),
        (&format!("{ERROR}    # status 3: x"), "other words", false),
        ("exit 3    # status 3: x", "", false),
    ] {
        let lines = if expected.is_empty() { String::new() } else { format!("{expected}\n") };
        let section = sections("test", &format!("## It\n```transcript\n$ {command}\n{lines}```")).remove(0);
        let ended = std::panic::catch_unwind(|| section.run());
        assert_eq!(ended.is_ok(), is_so, "{command}: {expected}");
    }
}
