//! Checks a page file: every page in use is read from the device.

use std::sync::Arc;

use strandline_base::{Error, Result};

use super::file::PageFile;
use super::space;
use super::store::PageStore;
use super::{Access, PageFileId, PageId, PageNumber};

/// Reads of a page that others may be writing.
const ATTEMPTS: usize = 3;

/// The result of a check without findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageCheck {
    /// pages in use, without the pages of the space map, ascending
    pub used: Vec<PageNumber>,
    /// free pages before the last used one, without those of running changes
    pub free: usize,
    /// the file's length in pages
    pub pages: u64,
}

impl PageStore {
    /// The pages in use, without the pages of the space map, ascending. Only the map is read.
    ///
    /// # Errors
    /// Those of [`PageStore::read`].
    pub fn used_pages(&self, file: PageFileId) -> Result<Vec<PageNumber>> {
        let maps = space::map_pages(&self.read(file, PageNumber(0), Access::Sequential)?);
        let mut used = Vec::new();
        for map in (0..maps).map(|k| k * space::MAPPED_PAGES) {
            let body = self.read(file, PageNumber(map), Access::Sequential)?;
            let last = map.saturating_add(space::MAPPED_PAGES - 1);
            let pages = (map + 1..=last).filter(|&page| space::is_used(&body, page));
            used.extend(pages.map(PageNumber));
        }
        Ok(used)
    }

    /// Reads every page in use. The caller keeps others from changing the file if it compares
    /// [`PageCheck::used`] with the pages that it knows.
    ///
    /// # Errors
    /// XX001 with file and page for the first damaged page.
    pub fn check(&self, file: PageFileId) -> Result<PageCheck> {
        let file = self.file(file)?;
        self.load_space(&file)?;
        let mut check = PageCheck {
            pages: file.pages(),
            ..PageCheck::default()
        };
        let maps = || -> Result<u32> {
            let first = self.read(file.id, PageNumber(0), Access::Sequential)?;
            Ok(space::map_pages(&first))
        };
        for map in (0..maps()?).map(|k| k * space::MAPPED_PAGES) {
            self.check_page(&file, PageNumber(map))?;
            let body = self
                .read(file.id, PageNumber(map), Access::Sequential)?
                .to_vec();
            if !space::is_used(&body, map) {
                // A checkpoint may have dropped the last pages of the map meanwhile.
                if map / space::MAPPED_PAGES >= maps()? {
                    break;
                }
                let what = "a page of the space map that is not marked as used";
                return Err(Error::corrupt(file.place(PageNumber(map)), what));
            }
            let last = map.saturating_add(space::MAPPED_PAGES - 1);
            for page in (map + 1..=last).filter(|&page| space::is_used(&body, page)) {
                self.check_page(&file, PageNumber(page))?;
                check.used.push(PageNumber(page));
            }
        }
        let space = file.space.lock();
        check.free = space.as_ref().map_or(0, |space| space.free_pages());
        Ok(check)
    }

    /// The page outside memory, unless memory has a newer one.
    fn check_page(&self, file: &Arc<PageFile>, number: PageNumber) -> Result<()> {
        let id = PageId {
            file: file.id,
            number,
        };
        let mut found = Ok(());
        for _ in 0..ATTEMPTS {
            if self.cached(id).is_some_and(|frame| frame.is_unsettled()) {
                return Ok(());
            }
            found = self.read_image(file, number, Access::Sequential).map(drop);
            if found.is_ok() {
                break;
            }
        }
        found
    }
}
