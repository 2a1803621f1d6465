//! The medium of a simulated disk: sectors, kept in pages, so that a disk of which little is written takes little memory. Pages that were
//! wiped and not written since are one in memory.

use super::{PAGE_BYTES, SECTOR_BYTES, Sector};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

const SECTORS_PER_PAGE: u64 = PAGE_BYTES / SECTOR_BYTES as u64;

#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    pages: BTreeMap<u64, Rc<Page>>,
}

#[derive(Clone, Debug)]
struct Page {
    sectors: [Sector; SECTORS_PER_PAGE as usize],
    /// A bit for each sector that was ever written; the others hold zeros.
    written: u8,
}

/// A page that was never written.
const BLANK: Page = Page { sectors: [[0; SECTOR_BYTES]; SECTORS_PER_PAGE as usize], written: 0 };

impl Medium {
    /// Writes whole pages of zeros.
    pub fn wipe(&mut self, pages: Range<u64>) {
        let wiped = Rc::new(Page { written: u8::MAX, ..BLANK });
        self.pages.extend(pages.map(|page| (page, wiped.clone())));
    }

    /// Writes a sector, and returns what it held if it was ever written.
    pub fn insert(&mut self, sector: u64, content: Sector) -> Option<Sector> {
        let (page, at, bit) = place(sector);
        let page = Rc::make_mut(self.pages.entry(page).or_insert_with(|| Rc::new(BLANK)));
        let before = std::mem::replace(&mut page.sectors[at], content);
        let was_written = page.written & bit != 0;
        page.written |= bit;
        was_written.then_some(before)
    }

    /// The content of a sector that was ever written.
    pub fn get(&self, sector: u64) -> Option<&Sector> {
        let (page, at, bit) = place(sector);
        self.pages.get(&page).filter(|page| page.written & bit != 0).map(|page| &page.sectors[at])
    }

    pub fn get_mut(&mut self, sector: u64) -> Option<&mut Sector> {
        let (page, at, bit) = place(sector);
        let page = self.pages.get_mut(&page).filter(|page| page.written & bit != 0)?;
        Some(&mut Rc::make_mut(page).sectors[at])
    }

    /// The sectors of a range that were ever written.
    pub fn written(&self, sectors: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let Range { start, end } = sectors;
        let pages =
            self.pages.range(start / SECTORS_PER_PAGE..end.div_ceil(SECTORS_PER_PAGE).max(start / SECTORS_PER_PAGE));
        let of_page = |(number, written): (u64, u8)| {
            let first = number * SECTORS_PER_PAGE;
            (first..first + SECTORS_PER_PAGE).filter(move |sector| written & place(*sector).2 != 0)
        };
        let pages = pages.map(|(number, page)| (*number, page.written));
        pages.flat_map(of_page).filter(move |sector| (start..end).contains(sector))
    }

    /// The content from a sector on; sectors that were never written read as zeros.
    pub fn read(&self, first: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        let mut sector = first;
        while bytes.len() < length {
            let (page, at, _) = place(sector);
            let count = (SECTORS_PER_PAGE as usize - at) * SECTOR_BYTES;
            let count = count.min(length - bytes.len());
            match self.pages.get(&page) {
                Some(page) => bytes.extend_from_slice(&page.sectors[at..].as_flattened()[..count]),
                None => bytes.resize(bytes.len() + count, 0),
            }
            sector += SECTORS_PER_PAGE - at as u64;
        }
        bytes
    }
}

/// The page of a sector, its place there, and its bit.
fn place(sector: u64) -> (u64, usize, u8) {
    let at = sector % SECTORS_PER_PAGE;
    (sector / SECTORS_PER_PAGE, at as usize, 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_read_as_they_were_written_and_others_as_zeros() {
        let mut medium = Medium::default();
        assert_eq!(medium.insert(6, [1; SECTOR_BYTES]), None);
        assert_eq!(medium.insert(9, [2; SECTOR_BYTES]), None);
        assert_eq!(medium.insert(9, [3; SECTOR_BYTES]), Some([2; SECTOR_BYTES]));
        medium.get_mut(6).expect("it is written")[0] = 9;
        assert_eq!((medium.get(7), medium.get(6).map(|sector| sector[..2].to_vec())), (None, Some(vec![9, 1])));
        let firsts: Vec<u8> = medium.read(5, 6 * SECTOR_BYTES).chunks(SECTOR_BYTES).map(|sector| sector[1]).collect();
        assert_eq!(firsts, [0, 1, 0, 0, 3, 0]);
        assert_eq!(medium.read(9, SECTOR_BYTES / 2), [3; SECTOR_BYTES / 2]);
        assert_eq!(medium.written(0..64).collect::<Vec<_>>(), [6, 9]);
        assert_eq!(medium.written(7..9).collect::<Vec<_>>(), []);
        assert_eq!(medium.written(6..7).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn pages_that_were_wiped_together_are_written_apart() {
        let mut medium = Medium::default();
        medium.insert(9, [1; SECTOR_BYTES]);
        medium.wipe(1..3);
        assert_eq!(medium.written(0..64).collect::<Vec<_>>(), (8..24).collect::<Vec<_>>());
        assert_eq!(medium.insert(9, [2; SECTOR_BYTES]), Some([0; SECTOR_BYTES]));
        medium.get_mut(10).expect("it is written")[0] = 3;
        let firsts: Vec<u8> = medium.read(8, 16 * SECTOR_BYTES).chunks(SECTOR_BYTES).map(|sector| sector[0]).collect();
        assert_eq!(firsts, [[0, 2, 3, 0, 0, 0, 0, 0], [0; 8]].concat());
    }
}
