// Precompiled once (about 20 s) for every file of this folder.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>
