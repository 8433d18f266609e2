// train KIT BATCH.safetensors TRAINED: 50 steps of a kit on a batch, with onnxruntime alone.
// Prints each loss and the loss of the evaluation, and writes the state as a folder of binaries.
#include <onnxruntime_cxx_api.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using nlohmann::json;
using Tensors = std::map<std::string, Ort::Value>;

constexpr int STEPS = 50;
const std::map<std::string, ONNXTensorElementDataType> TYPES = {
    {"float32", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT}, {"F32", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {"int64", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64}, {"I64", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {"int32", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32}, {"I32", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
};

// A tensor of its own memory, filled from where a file stands.
Ort::Value read(std::istream& file, const std::string& type, const std::vector<int64_t>& shape) {
  Ort::AllocatorWithDefaultOptions allocator;
  auto value = Ort::Value::CreateTensor(allocator, shape.data(), shape.size(), TYPES.at(type));
  file.read(static_cast<char*>(value.GetTensorMutableRawData()), value.GetTensorSizeInBytes());
  if (!file) throw std::runtime_error("a file of tensors is too short");
  return value;
}

template <typename T>
Ort::Value scalar(T number) {
  auto value = Ort::Value::CreateTensor<T>(Ort::AllocatorWithDefaultOptions(), nullptr, 0);
  *value.template GetTensorMutableData<T>() = number;
  return value;
}

std::ifstream open(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return file;
}

Tensors read_safetensors(const fs::path& path) {
  auto file = open(path);
  uint64_t length;  // little-endian, as is every machine that this is for
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string text(length, ' ');
  file.read(text.data(), length);
  auto header = json::parse(text);
  Tensors tensors;
  for (auto& [name, told] : header.items()) {
    if (name == "__metadata__") continue;
    file.seekg(sizeof length + length + told["data_offsets"][0].get<size_t>());
    tensors.emplace(name, read(file, told["dtype"], told["shape"]));
  }
  return tensors;
}

class Kit {
 public:
  explicit Kit(const fs::path& folder) : manifest_(json::parse(open(folder / "manifest.json"))) {
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);  // so small a model is fastest on one thread
    if (!manifest_["onnxruntime"].value("enable_mem_pattern", true)) options.DisableMemPattern();
    step_ = Ort::Session(env_, (folder / manifest_["step"]["file"]).c_str(), options);
    eval_ = Ort::Session(env_, (folder / manifest_["eval"]["file"]).c_str(), options);
    for (auto& each : manifest_["state"]["tensors"]) {
      auto file = open(folder / each["file"]);
      state_.emplace(each["name"], read(file, each["type"], each["shape"]));
    }
  }

  // Train on a batch; the loss.  Outputs become the state: they are moved, not copied.
  float step(const Tensors& batch) {
    auto found = run(step_, manifest_["step"], batch);
    for (auto& each : manifest_["state"]["tensors"]) {
      state_.at(each["name"]) = std::move(found.at(each["next"]));
    }
    return loss(found);
  }

  // The loss on a batch with the weights as they are now.
  float evaluate(const Tensors& batch) { return loss(run(eval_, manifest_["eval"], batch)); }

  // Write the state as the kit has it: one binary per tensor.
  void save(const fs::path& folder) const {
    fs::create_directory(folder);
    for (auto& each : manifest_["state"]["tensors"]) {
      auto& value = state_.at(each["name"]);
      auto name = fs::path(each["file"].get<std::string>()).filename();
      std::ofstream file(folder / name, std::ios::binary);
      file.write(static_cast<const char*>(value.GetTensorRawData()), value.GetTensorSizeInBytes());
      if (!file.flush()) throw std::runtime_error("cannot write " + (folder / name).string());
    }
  }

 private:
  json manifest_;
  Tensors state_;
  Ort::Env env_{ORT_LOGGING_LEVEL_WARNING, "kit"};
  Ort::Session step_{nullptr}, eval_{nullptr};
  Ort::MemoryInfo cpu_ = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);

  Tensors run(Ort::Session& session, const json& part, const Tensors& batch) {
    std::vector<std::string> names, wanted;
    std::vector<Ort::Value> given;
    for (auto& input : part["inputs"]) {
      names.push_back(input["name"]);
      if (auto own = batch.find(names.back()); own != batch.end()) {
        given.push_back(view(own->second));
      } else if (!input.contains("default")) {
        throw std::runtime_error("the batch has no " + names.back());
      } else if (input["type"] == "int64") {  // such as a seed
        given.push_back(scalar<int64_t>(input["default"]));
      } else {  // such as the learning rate
        given.push_back(scalar<float>(input["default"]));
      }
    }
    for (auto& name : part["state"]) {
      names.push_back(name);
      given.push_back(view(state_.at(name)));
    }
    for (auto& output : part["outputs"]) wanted.push_back(output["name"]);
    auto in = pointers(names), out = pointers(wanted);
    auto found = session.Run(Ort::RunOptions{nullptr}, in.data(), given.data(), given.size(),
                             out.data(), out.size());
    Tensors outputs;
    for (size_t i = 0; i < wanted.size(); i++) outputs.emplace(wanted[i], std::move(found[i]));
    return outputs;
  }

  // The same memory as another tensor: an input is only looked at.
  Ort::Value view(const Ort::Value& value) const {
    auto told = value.GetTensorTypeAndShapeInfo();
    auto shape = told.GetShape();
    return Ort::Value::CreateTensor(cpu_, const_cast<void*>(value.GetTensorRawData()),
                                    value.GetTensorSizeInBytes(), shape.data(), shape.size(),
                                    told.GetElementType());
  }

  static std::vector<const char*> pointers(const std::vector<std::string>& names) {
    std::vector<const char*> found;
    for (auto& name : names) found.push_back(name.c_str());
    return found;
  }

  float loss(const Tensors& found) const {
    return *found.at(manifest_["loss"]).GetTensorData<float>();
  }
};

int main(int count, char** words) try {
  if (count != 4) throw std::runtime_error("train KIT BATCH.safetensors TRAINED");
  Kit kit(words[1]);
  auto batch = read_safetensors(words[2]);
  std::cout.precision(9);
  for (int step = 0; step < STEPS; step++) std::cout << step << " " << kit.step(batch) << "\n";
  std::cout << "evaluation " << kit.evaluate(batch) << "\n";
  kit.save(words[3]);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
