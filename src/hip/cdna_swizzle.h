/* SPDX-License-Identifier: Apache-2.0 */
/* Where elements of a tile lie in LDS, so that lanes do not meet in a bank.
 *
 * LDS has 32 banks of four bytes. It serves accesses of 16 bytes a lane in groups of eight lanes
 * (loads: lanes 0..3 with 20..23, 4..7 with 16..19 and so on; stores: eight adjacent ones), and
 * these are to cover the banks: 128 bytes, a line of eight slots of 16 bytes. Lanes of a product
 * read the same chunk of different rows, which should not be the same slot of their lines. Where
 * padding of the rows does that, addresses stay a base and a constant. Elsewhere rows permute their
 * slots by an exclusive or. tools/amd_cost.py counts the conflicts that remain. */
#ifndef PF_CDNA_SWIZZLE_H
#define PF_CDNA_SWIZZLE_H

enum {
    CDNA_SLOT = 16 / CDNA_BYTES,
    CDNA_LINE = 8 * CDNA_SLOT,
    CDNA_ROW_PAD = CDNA_F32 ? 0 : CDNA_SLOT,
    CDNA_EXCHANGE_PAD = CDNA_F32 ? 0 : 2 * CDNA_SLOT
};

/* The index whose slot within its line is changed by `key`. Line and slot are kept apart so that
 * the compiler folds constant lines into the offset of the access. */
PF_DEVICE int cdna_swizzle(int index, int key) {
    return (index & -CDNA_LINE) + ((index & (CDNA_LINE - 1)) ^ (key * CDNA_SLOT));
}

/* Rows of a tile. Lanes read a chunk of 32 adjacent rows, which one slot of padding spreads; of f32
 * adjacent chunks of 16 rows, and single elements of rows four apart. */
PF_DEVICE int cdna_row_index(int row, int channel, int width) {
    return CDNA_F32 ? cdna_swizzle(row * width + channel, row % 8)
                    : row * (width + CDNA_ROW_PAD) + channel;
}

/* Rows of queries of dS as waves exchange it. Lanes read adjacent chunks of 16 rows. */
PF_DEVICE int cdna_exchange_index(int query, int key) {
    return CDNA_F32 ? cdna_swizzle(query * PF_OWNED_TILE + key, query % 8)
                    : query * (PF_OWNED_TILE + CDNA_EXCHANGE_PAD) + key;
}

/* Columns of `count` 16-bit rows, half a line or a multiple of a line, of a tile that streams.
 * Products read a chunk of 32 adjacent channels, for which the low bits of the key differ. The
 * transposing store writes to channels 8 apart: bits of channel / 8 enter the key in an order that
 * leaves the groups of the loads apart. */
PF_DEVICE int cdna_column_index(int channel, int place, int count) {
    const int near = count == 32 ? channel / 2 % 4 : channel % 8;
    const int far = channel / 8 % 2 * 2 | channel / 16 % 2 | channel / 32 % 2 * 4;
    return cdna_swizzle(channel * count + place, near ^ far);
}

/* Columns of the owned keys, whose product reads adjacent chunks of 16 channels. */
PF_DEVICE int cdna_crossed_index(int channel, int key) {
    return cdna_swizzle(channel * PF_OWNED_TILE + key, channel % 8);
}

#endif
