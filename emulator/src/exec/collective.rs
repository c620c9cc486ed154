//! Instructions that the lanes of a warp execute together.

use super::warp::{Warp, lanes};
use super::{LAUNCH_FAILED, Trouble, trouble};
use crate::ptx::program::{Reg, Shuffle};

/// Checks each lane's mask: it must contain the lane itself, and otherwise only lanes that execute
/// this instruction or have exited.
fn check_mask(warp: &Warp, named: &[u32; 32], mask: u32) -> Result<(), Trouble> {
    if mask == u32::MAX && *named == [u32::MAX; 32] {
        return Ok(());
    }
    for lane in lanes(mask) {
        let all = named[lane];
        if all >> lane & 1 == 0 {
            return trouble(LAUNCH_FAILED, 1 << lane, "is not in its own mask");
        }
        let elsewhere = all & warp.alive & !mask;
        if elsewhere != 0 {
            let text = format!("waits for lanes {elsewhere:#x}, which have diverged");
            return trouble(LAUNCH_FAILED, 1 << lane, text);
        }
    }
    Ok(())
}

/// `bar.warp.sync`.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn meet(warp: &Warp, mask_reg: Reg, mask: u32) -> Result<(), Trouble> {
    check_mask(warp, warp.word(mask_reg), mask)
}

/// `vote.sync.ballot`.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn ballot(warp: &mut Warp, [d, a, named]: [Reg; 3], mask: u32) -> Result<(), Trouble> {
    let named = *warp.word(named);
    check_mask(warp, &named, mask)?;
    let votes = warp.predicate(a) & mask;
    warp.put_word(d, &named.map(|named| votes & named), mask);
    Ok(())
}

/// `match.any.sync`.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn find_equal(
    warp: &mut Warp,
    [d, a, named]: [Reg; 3],
    mask: u32,
) -> Result<(), Trouble> {
    let (a, named) = (*warp.word(a), *warp.word(named));
    check_mask(warp, &named, mask)?;
    let equal = std::array::from_fn(|lane| {
        let same = (0..32).fold(0, |same, other| same | u32::from(a[other] == a[lane]) << other);
        same & named[lane] & mask
    });
    warp.put_word(d, &equal, mask);
    Ok(())
}

/// `shfl.sync`, as specified in the PTX ISA.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn shuffle(
    warp: &mut Warp,
    how: Shuffle,
    [d, predicate, a, b, c, named]: [Reg; 6],
    mask: u32,
) -> Result<(), Trouble> {
    check_mask(warp, warp.word(named), mask)?;
    let (a, b, c) = (*warp.word(a), *warp.word(b), *warp.word(c));
    let (mut value, mut found) = (a, 0);
    for lane in lanes(mask) {
        let (at, b, clamp, segment) =
            (lane as i64, i64::from(b[lane] & 31), c[lane] & 31, c[lane] >> 8 & 31);
        let first = i64::from(lane as u32 & segment);
        let last = i64::from(lane as u32 & segment | clamp & !segment);
        let (from, is_inside) = match how {
            Shuffle::Up => (at - b, at - b >= last),
            Shuffle::Down => (at + b, at + b <= last),
            Shuffle::Butterfly => (at ^ b, at ^ b <= last),
            Shuffle::Index => {
                let from = first | b & i64::from(!segment);
                (from, from <= last)
            }
        };
        let from = if is_inside { from as usize } else { lane };
        if mask >> from & 1 == 0 {
            return trouble(
                LAUNCH_FAILED,
                1 << lane,
                format!("reads lane {from}, which is inactive"),
            );
        }
        value[lane] = a[from];
        found |= u32::from(is_inside) << lane;
    }
    warp.put_word(d, &value, mask);
    warp.put_predicate(predicate, found, mask);
    Ok(())
}
