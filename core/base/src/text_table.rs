//! Tables in text, as commands and reports print them.

use crate::quoting::in_a_line;

/// Formats rows of cells: each column is as wide as its widest cell, and two blanks separate columns. A name in a cell can neither end the line
/// nor control the terminal.
pub fn table<Row: AsRef<[String]>>(rows: &[Row]) -> String {
    let cells = |row: &Row| row.as_ref().iter().map(|cell| in_a_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        // The width of a format has 16 bits.
        let padded = |cell: &String, width: usize| cell.clone() + &" ".repeat(width - cell.chars().count());
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width)).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// The same, below a title of each column.
pub fn titled<const COLUMNS: usize>(
    titles: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    table(&std::iter::once(titles.map(String::from)).chain(rows).collect::<Vec<_>>())
}

/// A table of values, each after its name.
pub fn named<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    table(&rows.into_iter().map(|(name, value)| [name.to_string(), value]).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_aligned() {
        let rows = [["a", "bb"], ["ccc", "d"], ["a\nb", "\u{1b}[2J\t\u{202e}"]].map(|row| row.map(str::to_string));
        assert_eq!(super::table(&rows), "a     bb\nccc   d\na\\nb  \\u{1b}[2J\\t\\u{202e}\n");
        let long = [["x".repeat(70_000), "y".into()], ["z".into(), "y".into()]].map(|row| row.to_vec());
        assert_eq!(super::table(&long).len(), 2 * 70_004);
    }
}
