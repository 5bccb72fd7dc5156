//! A set of prefixes in use, with a search for the lowest free prefix of a given length.
//!
//! The set is a binary tree over the bits of addresses. Each node represents a prefix, and its
//! children represent the two halves of this prefix. A node stores the length of the largest free
//! prefix in its subtree, so that a search can skip subtrees without enough space.
//!
//! In this example, only 10.0.0.0/9 is in use:
//!
//! ```text
//!             10.0.0.0/8   largest free: /9
//!            /          \
//!   10.0.0.0/9 (used)   absent: 10.128.0.0/9 is free
//! ```
//!
//! Every operation follows one path of at most 33 nodes down the tree. Operations that change the
//! set then update the nodes of this path from the bottom to the top. Therefore the cost does not
//! depend on the number of prefixes in use.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// The set of prefixes in use. The documentation of the module describes the tree.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The nodes of the tree; the root is the first node.
    nodes: Vec<Node>,
    /// Indices of the unused elements of `nodes`, which new nodes reuse.
    vacant: Vec<u32>,
    /// Number of node reads, which tests use as the cost of an operation.
    #[cfg(test)]
    pub(crate) visits: std::cell::Cell<u64>,
}

/// A prefix that is in use, or that contains a prefix in use. Only the root may be free.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Indices of the nodes of the lower and the upper half; [`ABSENT`] if the half is free.
    children: [u32; 2],
    /// Number of owners that share exactly this prefix.
    shared: u32,
    /// Whether exactly this prefix has an exclusive owner.
    exclusive: bool,
    /// Whether this prefix or a prefix inside of it has an exclusive owner.
    contains_exclusive: bool,
    /// Length of the largest free prefix inside of this prefix; [`NONE_FREE`] if there is none.
    largest_free: u8,
}

const ROOT: u32 = 0;

/// Index of an absent child. The root is never a child, so no child has this index.
const ABSENT: u32 = ROOT;

/// Value of [`Node::largest_free`] for a node without a free prefix. It exceeds all prefix lengths,
/// so that a search for any length skips the node.
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

    /// Returns whether a prefix that overlaps `net` has an exclusive owner.
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

    /// Returns the lowest free prefix with the length `prefix_len` in `pool`, if any.
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

    /// Adds an owner of `net`, either an exclusive one or one that shares the prefix.
    ///
    /// The caller checks for conflicts with other owners.
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

    /// Removes an owner that [`Tree::insert`] added with the same arguments, if there is one.
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

    /// Updates the ancestors of `net` after a change, and removes nodes that became free.
    ///
    /// `path` holds the indices of the ancestors, the root first.
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

/// Returns which half of a prefix contains `address`: 0 for the lower half, 1 for the upper half.
///
/// The prefix is the one of length `depth` that contains `address`.
fn half(address: Ipv4Addr, depth: u8) -> usize {
    usize::from(address.to_bits() & (1 << (31 - depth)) != 0)
}

fn net(address: Ipv4Addr, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new(address, prefix_len).expect("a prefix length of at most 32")
}

#[cfg(test)]
mod tests;
