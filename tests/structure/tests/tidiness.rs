//! Each source file says what it is for, is not too long, and leaves nothing undone.

use braid_structure::sources;

/// Beyond this, a file is more than one room.
const LINES_MAX: usize = 800;

#[test]
fn every_file_says_what_it_is_for_and_is_one_room() {
    let mut untidy = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        if !text.starts_with("//!") {
            untidy.push(format!("{} does not open with what it is for", file.display()));
        }
        if text.lines().count() > LINES_MAX {
            untidy.push(format!("{} has over {LINES_MAX} lines: it is more than one room", file.display()));
        }
        for word in ["todo!(", "unimplemented!(", "#[ignore", "dbg!("] {
            if text.contains(word) && !file.ends_with("tidiness.rs") {
                untidy.push(format!("{} has {word}", file.display()));
            }
        }
    }
    assert!(untidy.is_empty(), "{}", untidy.join("\n"));
}
