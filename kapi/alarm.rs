// SPDX-License-Identifier: GPL-2.0

//! A timer that makes whoever waits on a socket look again.
//!
//! C header: [`include/linux/hrtimer.h`](srctree/include/linux/hrtimer.h)

use super::sock::Sk;
use kernel::{
    impl_has_hr_timer,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeSoftMode, //
        },
        Delta,
        Monotonic, //
    },
};

#[pin_data]
struct Timer {
    #[pin]
    timer: HrTimer<Self>,
    sk: ARef<Sk>,
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Timer {
        mode: RelativeSoftMode<Monotonic>, field: self.timer
    }
}

impl HrTimerCallback for Timer {
    type Pointer<'a> = Arc<Self>;

    /// # Context
    ///
    /// Softirq.
    fn run(this: ArcBorrow<'_, Self>, _ctx: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        this.sk.data_ready();
        HrTimerRestart::NoRestart
    }
}

/// A timer that is set; when dropped it is cancelled, and does not ring any more afterwards.
pub(crate) struct Alarm {
    _handle: ArcHrTimerHandle<Timer>,
}

impl Alarm {
    /// Lets `sk`'s waiters be woken, as for something to read, after `delay`.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: out of memory.
    ///
    /// # Context
    ///
    /// Process context, may sleep.
    pub(crate) fn set(sk: &Sk, delay: Delta) -> Result<Self> {
        let timer = Arc::pin_init(
            pin_init!(Timer {
                timer <- HrTimer::new(),
                sk: sk.into(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _handle: timer.start(delay),
        })
    }
}
