//! The prefixes in use, and a search for the next free one.
//!
//! A binary tree over address bits. Each node is a prefix and stores the shortest free prefix below
//! it, so that a search descends directly to the lowest one that fits:
//!
//! ```text
//!             10.0.0.0/8   largest free: /9
//!            /          \
//!   10.0.0.0/9 (used)   absent: 10.128.0.0/9 is free
//! ```
//!
//! Every operation visits one path, down and up: at most 33 nodes, whatever the number of prefixes in
//! use.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// The prefixes in use.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The nodes, the root first; `vacant` lists unused entries.
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    /// Number of visited nodes: the cost of operations.
    #[cfg(test)]
    pub(crate) visits: std::cell::Cell<u64>,
}

/// A prefix that is in use or that contains one in use.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Index of the lower and the upper half; [`ABSENT`] if that half is free.
    children: [u32; 2],
    /// Number of owners that share exactly this prefix.
    shared: u32,
    /// Whether exactly this prefix has one owner that does not share it.
    exclusive: bool,
    /// Whether this prefix or one below it is held exclusively.
    contains_exclusive: bool,
    /// Length of the shortest free prefix at or below this one; [`NONE_FREE`] if there is none.
    largest_free: u8,
}

const ROOT: u32 = 0;
/// The root is no node's child.
const ABSENT: u32 = ROOT;
/// Longer than any prefix.
const NONE_FREE: u8 = 33;

impl Default for Tree {
    fn default() -> Self {
        Self {
            nodes: vec![Node::free(0)],
            vacant: Vec::new(),
            #[cfg(test)]
            visits: std::cell::Cell::default(),
        }
    }
}

impl Tree {
    /// Returns whether no address of `net` is in use.
    pub(crate) fn is_free(&self, net: Ipv4Net) -> bool {
        let mut index = ROOT;
        for depth in 0..net.prefix_len() {
            if self.node(index).is_held() {
                return false;
            }
            index = self.node(index).children[half(net.network(), depth)];
            if index == ABSENT {
                return true;
            }
        }

        self.node(index).largest_free == net.prefix_len()
    }

    /// Returns whether some address of `net` is held exclusively.
    pub(crate) fn has_exclusive(&self, net: Ipv4Net) -> bool {
        let mut index = ROOT;
        for depth in 0..net.prefix_len() {
            if self.node(index).exclusive {
                return true;
            }
            index = self.node(index).children[half(net.network(), depth)];
            if index == ABSENT {
                return false;
            }
        }

        self.node(index).contains_exclusive
    }

    /// Returns the lowest free prefix of `prefix_len` within `pool`.
    pub(crate) fn first_free(&self, pool: Ipv4Net, prefix_len: u8) -> Option<Ipv4Net> {
        if prefix_len < pool.prefix_len() {
            return None;
        }

        let mut index = ROOT;
        for depth in 0..pool.prefix_len() {
            if self.node(index).is_held() {
                return None;
            }
            index = self.node(index).children[half(pool.network(), depth)];
            if index == ABSENT {
                return Some(net(pool.network(), prefix_len));
            }
        }

        self.first_free_below(index, pool, prefix_len)
    }

    /// Marks `net` as held, exclusively or not.
    pub(crate) fn insert(&mut self, net: Ipv4Net, exclusive: bool) {
        let mut path = Vec::with_capacity(usize::from(net.prefix_len()));
        let mut index = ROOT;
        for depth in 0..net.prefix_len() {
            path.push(index);
            let half = half(net.network(), depth);
            let child = self.node(index).children[half];
            index = if child == ABSENT {
                let child = self.create(depth + 1);
                self.node_mut(index).children[half] = child;
                child
            } else {
                child
            };
        }

        let node = self.node_mut(index);
        if exclusive {
            node.exclusive = true;
        } else {
            node.shared += 1;
        }
        self.refresh(index, net.prefix_len());
        self.refresh_path(net, &path);
    }

    /// Undoes one [`Tree::insert`] of the same arguments.
    pub(crate) fn remove(&mut self, net: Ipv4Net, exclusive: bool) {
        let mut path = Vec::with_capacity(usize::from(net.prefix_len()));
        let mut index = ROOT;
        for depth in 0..net.prefix_len() {
            path.push(index);
            index = self.node(index).children[half(net.network(), depth)];
            if index == ABSENT {
                return;
            }
        }

        let node = self.node_mut(index);
        if exclusive {
            node.exclusive = false;
        } else {
            node.shared = node.shared.saturating_sub(1);
        }
        self.refresh(index, net.prefix_len());
        self.refresh_path(net, &path);
    }

    /// Returns the number of nodes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    fn first_free_below(&self, mut index: u32, pool: Ipv4Net, prefix_len: u8) -> Option<Ipv4Net> {
        let mut address = pool.network().to_bits();
        for depth in pool.prefix_len()..=prefix_len {
            let node = self.node(index);
            if node.largest_free > prefix_len {
                return None;
            }
            if node.largest_free == depth {
                break;
            }

            let lower = node.children[0];
            let descend_upper = lower != ABSENT && self.node(lower).largest_free > prefix_len;
            if descend_upper {
                address |= 1 << (31 - depth);
            }
            index = node.children[usize::from(descend_upper)];
            if index == ABSENT {
                break;
            }
        }

        Some(net(Ipv4Addr::from_bits(address), prefix_len))
    }

    /// Updates the nodes of `path`, the ancestors of `net`, and removes the free ones.
    fn refresh_path(&mut self, net: Ipv4Net, path: &[u32]) {
        for (depth, &index) in (0..net.prefix_len()).zip(path).rev() {
            let half = half(net.network(), depth);
            let child = self.node(index).children[half];
            if self.node(child).largest_free == depth + 1 {
                self.node_mut(index).children[half] = ABSENT;
                self.vacant.push(child);
            }
            self.refresh(index, depth);
        }
    }

    fn refresh(&mut self, index: u32, depth: u8) {
        let node = *self.node(index);
        let largest_free = match node.children {
            _ if node.is_held() => NONE_FREE,
            [ABSENT, ABSENT] => depth,
            children => children
                .map(|child| match child {
                    ABSENT => depth + 1,
                    child => self.node(child).largest_free,
                })
                .into_iter()
                .fold(NONE_FREE, u8::min),
        };
        let contains_exclusive = node.exclusive
            || node
                .children
                .into_iter()
                .any(|child| child != ABSENT && self.node(child).contains_exclusive);

        let node = self.node_mut(index);
        node.largest_free = largest_free;
        node.contains_exclusive = contains_exclusive;
    }

    fn create(&mut self, depth: u8) -> u32 {
        let node = Node::free(depth);
        match self.vacant.pop() {
            Some(index) => {
                *self.node_mut(index) = node;
                index
            }
            None => {
                let index = u32::try_from(self.nodes.len()).expect("fewer nodes than prefixes");
                self.nodes.push(node);
                index
            }
        }
    }

    fn node(&self, index: u32) -> &Node {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &self.nodes[index as usize]
    }

    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }
}

impl Node {
    fn free(depth: u8) -> Self {
        Self {
            children: [ABSENT; 2],
            shared: 0,
            exclusive: false,
            contains_exclusive: false,
            largest_free: depth,
        }
    }

    fn is_held(&self) -> bool {
        self.exclusive || self.shared > 0
    }
}

/// Returns which half of a prefix of length `depth` contains `address`.
fn half(address: Ipv4Addr, depth: u8) -> usize {
    usize::from(address.to_bits() & (1 << (31 - depth)) != 0)
}

fn net(address: Ipv4Addr, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new(address, prefix_len).expect("at most 32 levels")
}

#[cfg(test)]
mod tests;
