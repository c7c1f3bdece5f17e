#include "kernels/cpu/angle.h"

#include <cstdint>
#include <limits>

namespace baton::cpu {

void CosSin(float angle, float* cosine, float* sine) {
  if (!(angle > -0x1p31f && angle < 0x1p31f)) {
    *cosine = *sine = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  // Splits the angle: angle = quarter * pi/2 + r. pi/2 is given as a sum of two numbers (Cody &
  // Waite 1980). The first has 33 bits, so its product with a quarter of up to 20 bits is exact.
  // Subtracting this product from the angle is exact, too.
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPiHigh = 0x1.921fb544p+0, kHalfPiLow = 0x1.0b4611a626331p-34;
  constexpr double kRound = 0x1.8p52;  // adding and then subtracting it rounds to an integer
  const double x = angle;
  const double quarter = (x * kTwoOverPi + kRound) - kRound;
  const double r = (x - quarter * kHalfPiHigh) - quarter * kHalfPiLow;
  const double r2 = r * r;
  // Taylor series. For |r| <= pi/4 the first omitted term is below 3e-14.
  const double s =
      r + r * r2 *
              (-1.0 / 6 +
               r2 * (1.0 / 120 +
                     r2 * (-1.0 / 5040 + r2 * (1.0 / 362880 + r2 * (-1.0 / 39916800 +
                                                                    r2 * (1.0 / 6227020800.0))))));
  const double c =
      1.0 +
      r2 * (-1.0 / 2 +
            r2 * (1.0 / 24 + r2 * (-1.0 / 720 + r2 * (1.0 / 40320 +
                                                      r2 * (-1.0 / 3628800 +
                                                            r2 * (1.0 / 479001600.0 +
                                                                  r2 * (-1.0 / 87178291200.0)))))));
  switch (static_cast<int64_t>(quarter) & 3) {
    case 0:
      *cosine = static_cast<float>(c), *sine = static_cast<float>(s);
      return;
    case 1:
      *cosine = static_cast<float>(-s), *sine = static_cast<float>(c);
      return;
    case 2:
      *cosine = static_cast<float>(-c), *sine = static_cast<float>(-s);
      return;
    default:
      *cosine = static_cast<float>(s), *sine = static_cast<float>(-c);
      return;
  }
}

}  // namespace baton::cpu
