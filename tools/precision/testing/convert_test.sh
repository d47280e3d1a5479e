#!/bin/bash
# Values of a file to codes and back; a file that ends inside a value is refused, and nothing is written.
set -euo pipefail
convert=$PWD/tools/precision/testing/convert
cd "$TEST_TMPDIR"

printf '\x00\x00\x80\x3f\x00\x00\x00\xc0' > values  # 1 and -2
"$convert" --format BF16 --how codes --values values --out codes
printf '\x80\x3f\x00\x00\x00\xc0\x00\x00' | cmp - codes
"$convert" --format BF16 --how decode --values codes --out back
printf '\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\x00\xc0' | cmp - back

printf 'x' >> values
for how in codes round; do
  code=0
  "$convert" --format BF16 --how $how --values values --out none 2> err || code=$?
  [[ $code == 1 && ! -e none && $(wc -l < err) == 1 ]] && grep -q "values: has 9 bytes; need a multiple of 4" err ||
    { echo "--how $how: exit code $code"; cat err; exit 1; }
done
echo passed
