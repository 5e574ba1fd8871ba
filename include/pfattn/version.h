/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  The version of pfattn: the one place it is written. The build reads it from here.
 */
#ifndef PFATTN_VERSION_H
#define PFATTN_VERSION_H

#define PFATTN_VERSION_MAJOR 0
#define PFATTN_VERSION_MINOR 1
#define PFATTN_VERSION_PATCH 0

/** Version of the binary interface: raised whenever a program linked to an older library would
 *  break. It is the number in the shared library's soname. */
#define PFATTN_ABI_VERSION 0

#endif
