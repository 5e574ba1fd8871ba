/* SPDX-License-Identifier: Apache-2.0 */
/* The one includer of the HIP targets: PF_TARGET, PF_OP and what port.h names are set by the build. */
#include "../common/tuning.h"
#include "../common/kernels/port.h"
#include "port_cdna.h"

#if PF_OP == PF_OP_PASSES
#include "../common/kernels/passes.h"
#elif PF_OP == PF_OP_FORWARD || PF_OP == PF_OP_FORWARD_JVP
#include "../common/kernels/forward.h"
#elif PF_OP == PF_OP_BACKWARD || PF_OP == PF_OP_BACKWARD_JVP
#include "../common/kernels/backward.h"
#else
#include "../common/kernels/dbias.h"
#endif
