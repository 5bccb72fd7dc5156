//! A sorted list whose copies share their elements.

use std::ops::{Deref, Index, IndexMut};
use std::sync::Arc;

/// An element that has a unique key.
pub trait Keyed {
    /// Returns name and namespace; the latter is empty for elements without one.
    fn key(&self) -> (&str, &str);
}

/// A list that is sorted by key.
///
/// A copy costs O(1). A change of a list with copies costs O(n), but copies pointers only. Two copies are
/// compared quickly, because equal elements are usually the same allocation.
#[derive(Debug, PartialEq, Eq)]
pub struct List<T>(Arc<Vec<Arc<T>>>);

/// An element that differs between two lists: `None` in the list that lacks it.
#[derive(Debug, PartialEq, Eq)]
pub struct Difference<'a, T> {
    /// The element in the old list.
    pub old: Option<&'a T>,
    /// The element in the new list.
    pub new: Option<&'a T>,
}

impl<'a, T> Difference<'a, T> {
    /// Returns the old and the new element, if they exist.
    pub fn both(&self) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.old.into_iter().chain(self.new)
    }
}

impl<T: Keyed> List<T> {
    /// Returns the element with this name and namespace.
    pub fn find(&self, key: (&str, &str)) -> Option<&Arc<T>> {
        let found = self.position(key).ok()?;
        self.0.get(found)
    }

    /// Adds an element, or replaces the element of the same key.
    pub fn push(&mut self, element: T) {
        self.put(Arc::new(element));
    }

    /// Removes the element at `index`.
    ///
    /// # Panics
    ///
    /// Panics if there is no such element.
    pub fn remove(&mut self, index: usize) {
        Arc::make_mut(&mut self.0).remove(index);
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sets the element with this key, which `None` removes. An equal element stays the same allocation.
    pub fn set(&mut self, key: (&str, &str), element: Option<&Arc<T>>)
    where
        T: PartialEq,
    {
        match element {
            Some(element) if self.find(key).is_some_and(|old| **old == **element) => {}
            Some(element) => self.put(element.clone()),
            None => {
                if let Ok(found) = self.position(key) {
                    Arc::make_mut(&mut self.0).remove(found);
                }
            }
        }
    }

    /// Returns the elements that differ from those of `old`, in their order.
    ///
    /// The cost is a comparison of pointers for each element that both lists share.
    pub fn differences<'a>(&'a self, old: &'a Self) -> Vec<Difference<'a, T>>
    where
        T: Eq,
    {
        let mut found = Vec::new();
        if Arc::ptr_eq(&self.0, &old.0) {
            return found;
        }
        let (mut olds, mut news) = (old.0.iter().peekable(), self.0.iter().peekable());
        loop {
            let (old, new) = match (olds.peek(), news.peek()) {
                (None, None) => return found,
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) => (olds.next(), news.next()),
                (Some(old), Some(new)) => match old.key().cmp(&new.key()) {
                    std::cmp::Ordering::Less => (olds.next(), None),
                    std::cmp::Ordering::Equal => (olds.next(), news.next()),
                    std::cmp::Ordering::Greater => (None, news.next()),
                },
                (Some(_), None) => (olds.next(), None),
                (None, Some(_)) => (None, news.next()),
            };
            if old != new {
                let (old, new) = (old.map(|it| &**it), new.map(|it| &**it));
                found.push(Difference { old, new });
            }
        }
    }

    fn put(&mut self, element: Arc<T>) {
        let found = self.position(element.key());
        let elements = Arc::make_mut(&mut self.0);
        match found {
            Ok(position) => elements[position] = element,
            Err(position) => elements.insert(position, element),
        }
    }

    fn position(&self, key: (&str, &str)) -> Result<usize, usize> {
        self.0.binary_search_by(|element| element.key().cmp(&key))
    }
}

impl<T> List<T> {
    /// Returns the elements in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + Clone {
        self.0.iter().map(|element| &**element)
    }
}

impl<T: Clone> List<T> {
    /// Returns the elements, to be changed except for their keys. Copies the shared ones.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        Arc::make_mut(&mut self.0).iter_mut().map(Arc::make_mut)
    }
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Deref for List<T> {
    type Target = [Arc<T>];

    fn deref(&self) -> &[Arc<T>] {
        &self.0
    }
}

impl<T: Keyed> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements: Vec<_> = elements.into_iter().map(Arc::new).collect();
        elements.sort_by(|a, b| a.key().cmp(&b.key()));
        Self(Arc::new(elements))
    }
}

impl<T: Keyed> From<Vec<T>> for List<T> {
    fn from(elements: Vec<T>) -> Self {
        elements.into_iter().collect()
    }
}

impl<T> Index<usize> for List<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.0[index]
    }
}

impl<T: Clone> IndexMut<usize> for List<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        Arc::make_mut(&mut Arc::make_mut(&mut self.0)[index])
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a Arc<T>;
    type IntoIter = std::slice::Iter<'a, Arc<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Element(&'static str, u8);

    impl Keyed for Element {
        fn key(&self) -> (&str, &str) {
            (self.0, "")
        }
    }

    #[test]
    fn differences_are_added_removed_and_changed_elements() {
        let old = List::from(vec![Element("d", 4), Element("a", 1), Element("b", 2)]);
        let mut new = old.clone();
        assert!(new.differences(&old).is_empty());

        new.set(("b", ""), Some(&Arc::new(Element("b", 7))));
        new.set(("d", ""), Some(&Arc::new(Element("d", 4))));
        new.set(("a", ""), None);
        new.push(Element("c", 3));

        let found: Vec<_> = (new.differences(&old).iter())
            .map(|it| (it.old.map(|it| it.1), it.new.map(|it| it.1)))
            .collect();
        let expected = [(Some(1), None), (Some(2), Some(7)), (None, Some(3))];
        assert_eq!(found, expected);
        assert!(
            Arc::ptr_eq(&old.0[2], &new.0[2]),
            "an equal element is kept"
        );
        assert_eq!(old.find(("b", "")).map(|it| it.1), Some(2));
    }
}
