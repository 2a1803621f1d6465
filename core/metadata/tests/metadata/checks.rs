//! The check of a whole file system in place of its server.

use crate::bench::*;

#[test]
fn a_check_of_many_pages_finds_nothing_wrong() {
    let mut bench = Bench::new();
    // More keys than a page has.
    for number in 0..700 {
        bench.create(ONE, &format!("file {number}"));
    }
    let full = bench.create(TWO, "full");
    bench.fill(TWO, full, 500);
    bench.run(ONE, unlink("file 7")).expect("it exists");
    assert_eq!(bench.check(), (Vec::new(), 0));
    bench.restart(Time(0));
    assert!(bench.lookup(ONE, "file 8").is_ok(), "the check has changed nothing");
}

#[test]
fn a_check_answers_no_host() {
    let mut bench = Bench::new();
    bench.create(ONE, "a");
    bench.check();
    let asked = bench.ask(ONE, FileCommand::Lookup { parent: ROOT, name: name_of("a") });
    assert_eq!(bench.reply(ONE, asked), None);
    assert!(!bench.server.is_serving());
}

#[test]
fn a_check_reports_a_volume_without_a_file_system() {
    let mut bench = Bench::blank(1);
    assert_eq!(bench.check(), (vec![Finding::Blank], 0));
}
