// SPDX-License-Identifier: GPL-2.0

//! Size classes.

use crate::bufpool::size::Class;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[test]
fn every_class_is_a_power_of_two_and_larger_than_the_one_below() {
    let mut classes = vec![Class::RESERVE, Class::FIRST];
    while let Some(next) = classes.last().unwrap().next_within(usize::MAX) {
        if Some(&next) == classes.last() {
            break;
        }
        classes.push(next);
    }
    assert_eq!(*classes.last().unwrap(), Class::LARGEST);
    for pair in classes.windows(2) {
        assert!(pair[0].size() < pair[1].size());
    }
    for class in classes {
        assert!(class.size().is_power_of_two());
        assert_eq!(class.index() < Class::KEPT, class <= Class::LARGEST_KEPT);
    }
}

#[test]
fn classes_have_the_sizes_of_smc() {
    assert_eq!(Class::RESERVE.size(), 4 * KIB);
    assert_eq!(Class::FIRST.size(), 16 * KIB);
    assert_eq!(Class::LARGEST_KEPT.size(), MIB);
    assert_eq!(Class::LARGEST.size(), 16 * MIB);
}

#[test]
fn sizes_are_rounded_as_asked() {
    for (bytes, down, up) in [
        (0, 16 * KIB, 16 * KIB),
        (16 * KIB, 16 * KIB, 16 * KIB),
        (16 * KIB + 1, 16 * KIB, 32 * KIB),
        (64 * KIB, 64 * KIB, 64 * KIB),
        (MIB - 1, 512 * KIB, MIB),
        (usize::MAX, 16 * MIB, 16 * MIB),
    ] {
        assert_eq!(Class::at_most(bytes).size(), down, "at most {bytes}");
        assert_eq!(Class::at_least(bytes).size(), up, "at least {bytes}");
    }
}

#[test]
fn a_chain_grows_fourfold_within_what_is_left() {
    let mut class = Class::FIRST;
    let mut sizes = vec![class.size()];
    for _ in 0..5 {
        class = class.next_within(64 * MIB).unwrap();
        sizes.push(class.size());
    }
    let expected = [16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB];
    assert_eq!(sizes, expected);
    assert_eq!(class.next_within(64 * MIB), Some(Class::LARGEST));
    assert_eq!(class.next_within(100 * KIB).unwrap().size(), 64 * KIB);
    assert_eq!(class.next_within(16 * KIB - 1), None);
}

#[test]
fn smaller_ends_before_the_reserve() {
    let mut class = Class::LARGEST;
    let mut steps = 0;
    while let Some(next) = class.smaller() {
        class = next;
        steps += 1;
    }
    assert_eq!((class, steps), (Class::FIRST, 10));
    assert_eq!(Class::RESERVE.smaller(), None);
}

#[test]
fn kept_classes_come_largest_first_and_end_with_the_reserve() {
    let kept: Vec<_> = Class::kept().collect();
    assert_eq!(kept.first(), Some(&Class::LARGEST_KEPT));
    assert_eq!(kept.last(), Some(&Class::RESERVE));
    assert!(kept.windows(2).all(|pair| pair[0] > pair[1]));
}
