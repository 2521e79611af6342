//! Adding, retiring and removing entries: changes of a leaf, and what follows from them in the
//! nodes above.
//!
//! A writer has the way from the root to a leaf in memory, changes the leaf's entries, and lets
//! [`Tree::settle`] go up: a node with too many entries is divided, one without any is taken away,
//! and the parent's entry gets the node's bound. So all changes of an operation are one change of
//! pages.

use super::divide::{choose, divide};
use super::node::{Bound, Damage, Entry, Node, Tail, capacity};
use super::tree::{Search, Tree, Visit};
use crate::rect::Rect;
use crate::tree_pages::ROOT;
use strandline_base::{CommitTs, Result, RowId};
use strandline_storage::pages::{Access, PageChange, PageNumber};

/// A node on the way from the root to a leaf.
pub(super) struct Step {
    page: PageNumber,
    pub node: Node,
    /// the position of the next step's node, or of a leaf's entry
    pub at: usize,
    is_changed: bool,
}

impl Step {
    fn new(page: PageNumber, node: Node, at: usize) -> Self {
        Self {
            page,
            node,
            at,
            is_changed: false,
        }
    }
}

/// No children, which a check would find, too.
const CHILDLESS: Damage = Damage("an inner node has no children");

impl Tree {
    /// Adds an entry, or revives it. Returns whether it is new.
    pub fn add(&self, rect: Rect, row: RowId) -> Result<bool> {
        let bound = Bound::of(rect, row);
        self.read_way(&bound);
        let _others_wait = self.writers.lock();
        self.enter(bound)
    }

    /// [`Tree::add`]; also appends to `others` the other rows of equal boxes.
    pub fn insert_seeing(&self, rect: Rect, row: RowId, others: &mut Vec<RowId>) -> Result<bool> {
        let bound = Bound::of(rect, row);
        self.read_way(&bound);
        let _others_wait = self.writers.lock();
        let mut seen = Vec::new();
        self.rows_of(&rect, &mut seen)?;
        let is_new = self.enter(bound)?;
        others.extend(seen.into_iter().filter(|other| *other != row));
        Ok(is_new)
    }

    /// Reads the nodes that an entry would be added below into memory. The caller has no lock. A
    /// hint: an error comes again under the lock.
    fn read_way(&self, bound: &Bound) {
        let _running = self.searches.begin();
        let mut next = Some(Visit::ROOT);
        while let Some(visit) = next {
            let node = self.visit(&visit, Access::Random).ok();
            next = node.and_then(|node| {
                let at = choose(&node.entries, bound)?;
                let (_, child) = node.children().nth(at)?;
                Some(Self::child_of(&node, child))
            });
        }
    }

    /// [`Tree::add`] under the writers' lock.
    fn enter(&self, bound: Bound) -> Result<bool> {
        if let Some(mut path) = self.seek(&bound)? {
            let leaf = path.last_mut().expect("a way has a leaf");
            let entry = leaf.node.entries.get_mut(leaf.at).expect("found");
            if entry.tail != Tail::Live {
                entry.tail = Tail::Live;
                leaf.is_changed = true;
                self.commit(path)?;
            }
            return Ok(false);
        }
        let mut path = self.way_down(&bound)?;
        let leaf = path.last_mut().expect("a way has a leaf");
        let (tail, mut expired) = (Tail::Live, 0);
        let entries = &mut leaf.node.entries;
        if entries.len() >= capacity(0, self.node_bytes) {
            expired = entries.len();
            entries.retain(|entry| !self.is_expired(entry.tail));
            expired -= entries.len();
        }
        entries.push(Entry { bound, tail });
        leaf.is_changed = true;
        self.commit(path)?;
        self.count.note(1, expired);
        Ok(true)
    }

    /// Removes an entry if no snapshot needs it, and otherwise notes since when none will.
    pub fn retire(&self, rect: Rect, row: RowId, since: CommitTs) -> Result<()> {
        let bound = Bound::of(rect, row);
        self.read_way(&bound);
        let _others_wait = self.writers.lock();
        let Some(mut path) = self.seek(&bound)? else {
            return Ok(());
        };
        let leaf = path.last_mut().expect("a way has a leaf");
        leaf.is_changed = true;
        if since != CommitTs::ZERO && since > self.oldest() {
            let entry = leaf.node.entries.get_mut(leaf.at).expect("found");
            entry.tail = Tail::Retired(since);
            return self.commit(path);
        }
        leaf.node.entries.swap_remove(leaf.at);
        self.commit(path)?;
        self.count.note(0, 1);
        Ok(())
    }

    /// Removes every entry for which `keep` returns false, and every expired one. `keep` is asked
    /// about each entry at least once: all are visited again if the root takes over a leaf's.
    pub fn retain(&self, keep: &mut dyn FnMut(&Rect, RowId) -> bool) -> Result<()> {
        while !self.retain_once(keep)? {}
        let _others_wait = self.writers.lock();
        self.leave(&[]);
        Ok(())
    }

    /// [`Tree::retain`]; returns false if the root has taken over a leaf's entries meanwhile.
    fn retain_once(&self, keep: &mut dyn FnMut(&Rect, RowId) -> bool) -> Result<bool> {
        let mut search = Search::new(self);
        let (mut visits, mut is_whole) = (vec![Visit::ROOT], true);
        while let Some(visit) = visits.pop() {
            let node = self.visit(&visit, Access::Sequential)?;
            if node.level > 0 {
                visits.extend(search.right_of(&visit, &node)?);
                let children = node.children();
                visits.extend(children.map(|(_, page)| Self::child_of(&node, page)));
                continue;
            }
            let _others_wait = self.writers.lock();
            let (node, right) = search.visit(&visit, Access::Sequential)?;
            visits.extend(right);
            if node.level > 0 {
                visits.push(visit);
            } else if node.is_gone {
                is_whole &= node.entries.is_empty();
            } else {
                self.sweep(node, keep)?;
            }
        }
        Ok(is_whole)
    }

    /// Removes entries of a leaf, under the writers' lock.
    fn sweep(&self, leaf: Node, keep: &mut dyn FnMut(&Rect, RowId) -> bool) -> Result<()> {
        let held = leaf.entries.len();
        let mut kept = leaf.entries.clone();
        kept.retain(|entry| {
            !self.is_expired(entry.tail) && keep(&entry.bound.rect, entry.bound.row())
        });
        let Some(first) = leaf.entries.first().filter(|_| kept.len() < held) else {
            return Ok(());
        };
        let gone = held - kept.len();
        let path = self.seek(&first.bound)?;
        let lost = Damage("no way from the root leads to an entry");
        let mut path = path.ok_or_else(|| self.damaged(ROOT, lost))?;
        let step = path.last_mut().expect("a way has a leaf");
        step.node.entries = kept;
        step.is_changed = true;
        self.commit(path)?;
        self.count.note(0, gone);
        Ok(())
    }

    /// Appends the rows of boxes that equal `rect`.
    pub fn rows_of(&self, rect: &Rect, rows: &mut Vec<RowId>) -> Result<()> {
        let mut search = Search::new(self);
        let mut visits = vec![Visit::ROOT];
        while let Some(visit) = visits.pop() {
            let (node, right) = search.visit(&visit, Access::Random)?;
            visits.extend(right);
            let holding = node.children().filter(|(b, _)| b.rect.contains(rect));
            visits.extend(holding.map(|(_, page)| Self::child_of(&node, page)));
            if node.level == 0 {
                let equal = node.entries.iter().filter(|e| e.bound.rect == *rect);
                rows.extend(equal.map(|entry| entry.bound.row()));
            }
        }
        Ok(())
    }

    /// The way to an entry; None if there is no such entry. Under the writers' lock.
    fn seek(&self, wanted: &Bound) -> Result<Option<Vec<Step>>> {
        let root = self.visit(&Visit::ROOT, Access::Random)?;
        let mut path = vec![Step::new(ROOT, root, 0)];
        // A step's position is the one of the child or the entry that is looked at next.
        while let Some(step) = path.last_mut() {
            let rest = step.node.entries.iter().enumerate().skip(step.at);
            let is_leaf = step.node.level == 0;
            let leads = |entry: &Entry| match is_leaf {
                true => entry.bound == *wanted,
                false => entry.bound.contains(wanted),
            };
            let next = rest.map(|(at, entry)| (at, *entry)).find(|(_, e)| leads(e));
            match next {
                Some((at, entry)) => {
                    step.at = at;
                    let Tail::Child(page) = entry.tail else {
                        return Ok(Some(path));
                    };
                    let visit = Self::child_of(&step.node, page);
                    let node = self.visit(&visit, Access::Random)?;
                    path.push(Step::new(page, node, 0));
                }
                None => {
                    path.pop();
                    if let Some(above) = path.last_mut() {
                        above.at += 1;
                    }
                }
            }
        }
        Ok(None)
    }

    /// The way to the leaf that a new entry goes to. Under the writers' lock.
    fn way_down(&self, bound: &Bound) -> Result<Vec<Step>> {
        let (mut visit, mut path) = (Visit::ROOT, Vec::new());
        loop {
            let node = self.visit(&visit, Access::Random)?;
            if node.level == 0 {
                path.push(Step::new(visit.page, node, 0));
                return Ok(path);
            }
            let at = choose(&node.entries, bound).unwrap_or_default();
            let child = node.children().nth(at);
            let (_, child) = child.ok_or_else(|| self.damaged(visit.page, CHILDLESS))?;
            let next = Self::child_of(&node, child);
            path.push(Step::new(visit.page, node, at));
            visit = next;
        }
    }

    /// Settles and commits a change of the last node of a way; then frees pages that nothing leads
    /// to. Under the writers' lock.
    fn commit(&self, mut path: Vec<Step>) -> Result<()> {
        let mut change = self.begin();
        let mut gone = self.settle(&mut change, &mut path)?;
        for step in path.iter().filter(|step| step.is_changed) {
            change.write(step.page)?;
            self.write(&mut change, step.page, &step.node)?;
        }
        change.commit()?;
        // The entry's change is made. A root that could not be lowered the next removal lowers.
        let _ = self.lower_root(&path, &mut gone);
        if !gone.is_empty() {
            self.leave(&gone);
        }
        Ok(())
    }

    /// Frees pages of nodes that have been taken away, these and earlier ones, if no search comes
    /// to them. Under the writers' lock.
    fn leave(&self, gone: &[PageNumber]) {
        for page in self.searches.end_epoch(gone) {
            let mut change = self.begin();
            // A page that could not be freed is one that is not used again.
            let _ = change.free(page).and_then(|()| change.commit());
        }
    }

    /// Makes the nodes of a way right from the leaf up to the root. Returns the pages of nodes that
    /// have been taken away.
    fn settle(&self, change: &mut PageChange, path: &mut [Step]) -> Result<Vec<PageNumber>> {
        let mut gone = Vec::new();
        for depth in (1..path.len()).rev() {
            let (above, below) = path.split_at_mut(depth);
            let (Some(parent), Some(step)) = (above.last_mut(), below.first_mut()) else {
                break;
            };
            let node = &mut step.node;
            if node.entries.len() > capacity(node.level, self.node_bytes) {
                let mut right = node.clone();
                right.entries = divide(&mut node.entries);
                let page = change.allocate()?;
                self.write(change, page, &right)?;
                parent.node.child_splits += 1;
                (node.right, node.split_no) = (Some(page), parent.node.child_splits);
                let bound = right.bound().expect("either part has entries");
                parent.node.entries.push(Entry::child(bound, page));
                (step.is_changed, parent.is_changed) = (true, true);
            }
            let bound = node.bound();
            let Some(entry) = parent.node.entries.get_mut(parent.at) else {
                break;
            };
            match bound {
                Some(bound) if entry.bound == bound => {}
                Some(bound) => {
                    entry.bound = bound;
                    parent.is_changed = true;
                }
                None => {
                    node.is_gone = true;
                    parent.node.entries.swap_remove(parent.at);
                    (step.is_changed, parent.is_changed) = (true, true);
                    gone.push(step.page);
                }
            }
        }
        if let Some(root) = path.first_mut() {
            self.settle_root(change, root)?;
        }
        Ok(gone)
    }

    /// Moves the entries of a root that has too many into two new nodes. A root without entries is
    /// a leaf.
    fn settle_root(&self, change: &mut PageChange, root: &mut Step) -> Result<()> {
        let node = &mut root.node;
        if node.entries.is_empty() {
            node.level = 0;
        }
        if node.entries.len() <= capacity(node.level, self.node_bytes) {
            return Ok(());
        }
        let mut left = node.clone();
        let mut right = node.clone();
        right.entries = divide(&mut left.entries);
        node.entries.clear();
        for part in [left, right] {
            let page = change.allocate()?;
            self.write(change, page, &part)?;
            let bound = part.bound().expect("either part has entries");
            node.entries.push(Entry::child(bound, page));
        }
        node.level += 1;
        Ok(())
    }

    /// Moves the content of the root's only child into the root, as long as there is only one
    /// child, after a change of the nodes of `path`. Appends the pages of the children to `gone`.
    fn lower_root(&self, path: &[Step], gone: &mut Vec<PageNumber>) -> Result<()> {
        let mut root = match path.first() {
            Some(step) if step.node.level > 0 && step.node.entries.len() == 1 => step.node.clone(),
            _ => return Ok(()),
        };
        while root.level > 0 && root.entries.len() == 1 {
            let child = root.children().next();
            let (_, page) = child.ok_or_else(|| self.damaged(ROOT, CHILDLESS))?;
            let mut child = self.visit(&Self::child_of(&root, page), Access::Random)?;
            root = Node {
                right: None,
                split_no: 0,
                ..child.clone()
            };
            child.is_gone = true;
            let mut change = self.begin();
            for (number, node) in [(ROOT, &root), (page, &child)] {
                change.write(number)?;
                self.write(&mut change, number, node)?;
            }
            change.commit()?;
            gone.push(page);
        }
        Ok(())
    }
}
